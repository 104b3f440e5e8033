"""What lowering hands to code generation: one TIR function per launch and how to launch it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc


@dataclass(frozen=True, eq=False)
class LoweredLaunch:
    """One launch. ``func`` has the entry signature that ``tilec.codegen.image`` describes: pointers as
    handles, no buffer map, no return value; its names carry no meaning. ``grid`` has 1 to 3 integer texts,
    ``scratch_bytes`` is per worker (multiple of 64), ``notes`` are the lines that `explain` shows."""

    func: PrimFunc
    grid: tuple[str, ...]
    threads: tuple[int, int, int]
    scratch_bytes: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class LoweredKernel:
    """All launches of one variant in order; ``workspace`` pairs each T.alloc_global's name with the integer
    text of its size in bytes."""

    name: str
    launches: tuple[LoweredLaunch, ...]
    workspace: tuple[tuple[str, str], ...] = ()
