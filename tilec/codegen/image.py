"""What code generation hands to the package: machine code of one variant and how to launch it.

Plain data, so that it crosses process boundaries and lives in the cache. Integer expressions are texts in the
syntax of ``TensorParam.extents`` (Python, over dim names and scalar parameter names, with + - * // %,
comparisons, ``min(a, b)``, ``max(a, b)``, ``select(cond, a, b)``), computed in 64 bits.

The C entry of a CPU launch:

    void symbol(T *tensor..., void *workspace_slice..., scalar..., int64_t dim..., void *scratch,
                int64_t begin, int64_t end);

tensor parameters in kernel order, then one pointer per workspace slice, then scalar parameters in kernel
order (float16, bfloat16 and float8 travel as float, bool as int32_t, others as themselves), then every dim
of the kernel in order, pinned ones too; ``scratch`` is this worker's, 64-byte aligned; blocks [begin, end) of
the linear block index bx + gx * (by + gy * bz) are run.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LaunchCode:
    """One launch of a variant. ``grid`` has 1 to 3 integer texts; ``scratch_bytes`` is per worker (multiple
    of 64); ``notes`` are lines that `explain` shows (what was vectorised, which microkernel, why not)."""

    symbol: str
    grid: tuple[str, ...]
    threads: tuple[int, int, int]
    scratch_bytes: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkspaceSlice:
    """One T.alloc_global of a variant: its size in bytes is an integer text."""

    name: str
    bytes: str


@dataclass(frozen=True)
class Image:
    """Machine code of one variant: a relocatable ELF object for a CPU target. ``sha256`` is of ``code``."""

    target: str
    code: bytes
    sha256: str
    launches: tuple[LaunchCode, ...]
    workspace: tuple[WorkspaceSlice, ...] = ()
