"""The statement of copies that lanes of a wave carry out together."""

from __future__ import annotations

from dataclasses import dataclass

from tilec.backends.cuda.nodes import AsyncCopy


@dataclass(frozen=True, eq=False)
class LaneCopy(AsyncCopy):
    """An AsyncCopy by global_load_lds: the lanes of a wave fill consecutive pieces of shared memory, each
    from an address of its own."""
