"""What a launch on an AMD GPU takes beside what launches on every device do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilec.codegen.image import DeviceLaunch


@dataclass(frozen=True)
class HipLaunch(DeviceLaunch):
    """``blocks_per_unit``: of a persistent launch, for each compute unit. ``lanes`` of a wave, scalar
    registers of it (``scalars``) and ``kernarg_bytes`` of arguments are what the code object says."""

    blocks_per_unit: int = 0
    lanes: int = 0
    scalars: int = 0
    kernarg_bytes: int = 0


def read_launch(fields: Mapping[str, Any]) -> HipLaunch:
    """The inverse of `dataclasses.asdict` and JSON."""
    wide = None if fields["wide"] is None else tuple(fields["wide"])
    return HipLaunch(**{**fields, "cluster": tuple(fields["cluster"]), "wide": wide})
