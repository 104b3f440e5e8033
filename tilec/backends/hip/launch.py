"""What a launch on an AMD GPU takes beside what launches on every device do."""

from __future__ import annotations

from dataclasses import dataclass

from tilec.codegen.image import PersistentLaunch


@dataclass(frozen=True)
class HipLaunch(PersistentLaunch):
    """``lanes`` of a wave, scalar registers of it (``scalars``) and ``kernarg_bytes`` of arguments are what
    the code object says."""

    lanes: int = 0
    scalars: int = 0
    kernarg_bytes: int = 0
