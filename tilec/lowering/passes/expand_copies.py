"""Copy and Fill as Parallel loops.

copy(A[b * 64:+64, 0:+8], s[0:+64, 0:+8])    ->    for i, j in parallel(64, 8): s[i, j] = A[b * 64 + i, j]
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.errors import UnsupportedError
from tilec.ir.exprs import cast_to, dtype_of, int_value
from tilec.ir.hints import Hints
from tilec.ir.nodes import Alloc, Block, Copy, Fill, Parallel, Region, Stmt, Store
from tilec.ir.places import place_of
from tilec.lowering.analysis.regions import may_overlap
from tilec.lowering.passes.base import BlockPass

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


class ExpandCopies(BlockPass):
    """In: Copy and Fill. Out: none of them; each is a Parallel over its axes of more than one element whose
    body is one Store. Bounds stay implicit: reads outside give 0, writes outside are dropped."""

    def block(self, block: Block) -> list[Stmt]:
        """The block without Copy and Fill."""
        return [_expand(part) for stmt in block for part in _apart(stmt)]


def _apart(stmt: Stmt) -> list[Stmt]:
    """A copy between parts of one tile that may overlap goes through a tile of its own."""
    if not isinstance(stmt, Copy) or not may_overlap(stmt.src, stmt.dst):
        return [stmt]
    extents = [int_value(extent) for extent in stmt.dst.extent]
    if None in extents:
        raise UnsupportedError(
            f"a copy within {stmt.dst.buffer.name} may overlap, and its extents are known at run time only",
            place=place_of(stmt, "T.copy"),
            remedy="copy to another tile first",
        )
    between = tirx.decl_buffer(
        extents, str(stmt.src.buffer.dtype), f"{stmt.src.buffer.name}_copy", scope="local.fragment"
    )
    whole = Region(between, tuple(tirx.const(0, "int32") for _ in extents), stmt.dst.extent)
    return [Alloc(between), replace(stmt, dst=whole), replace(stmt, src=whole)]


def _expand(stmt: Stmt) -> Stmt:
    if isinstance(stmt, Copy):
        return expand_copy(stmt)
    return expand_fill(stmt) if isinstance(stmt, Fill) else stmt


def expand_copy(stmt: Copy) -> Stmt:
    """A copy as a loop (as a single Store where it moves one element)."""
    loop = _Axes(stmt.dst)
    source = tirx.BufferLoad(stmt.src.buffer, list(loop.indices(stmt.src)))
    value = cast_to(source, str(stmt.dst.buffer.dtype))
    return loop.over(Store(stmt.dst.buffer, loop.indices(stmt.dst), value, loc=stmt.loc), stmt)


def expand_fill(stmt: Fill) -> Stmt:
    """A fill as a loop (as a single Store where it sets one element)."""
    loop = _Axes(stmt.dst)
    return loop.over(Store(stmt.dst.buffer, loop.indices(stmt.dst), stmt.value, loc=stmt.loc), stmt)


def is_single(extent: int | Expr) -> bool:
    """Whether an axis of a region has one element."""
    return int_value(extent) == 1


class _Axes:
    """Loop variables for the axes of a region that have more than one element."""

    def __init__(self, region: Region) -> None:
        self.extents = tuple(extent for extent in region.extent if not is_single(extent))
        dtypes = ["int32" if isinstance(extent, int) else dtype_of(extent) for extent in self.extents]
        self.vars: tuple[Var, ...] = tuple(
            tirx.Var(name, dtype) for name, dtype in zip(_names(len(dtypes)), dtypes, strict=True)
        )

    def indices(self, region: Region) -> tuple[Expr, ...]:
        """The element of ``region`` that one iteration touches; its longer axes pair with ours in order."""
        remaining = list(self.vars)
        wide = sum(not is_single(extent) for extent in region.extent)
        result = []
        for start, extent in zip(region.start, region.extent, strict=True):
            takes = not is_single(extent) and wide <= len(remaining) and remaining
            result.append(add(start, remaining.pop(0)) if takes else start)
            wide -= not is_single(extent)
        return tuple(result)

    def over(self, store: Store, origin: Stmt) -> Stmt:
        """The loop around ``store``."""
        if not self.vars:
            return store
        hints = origin.hints if isinstance(origin, Copy) else Hints()
        return Parallel(self.vars, self.extents, (store,), hints, loc=origin.loc)


def add(start: Expr, var: Var) -> Expr:
    """start + var in the wider of their types."""
    wide = "int64" if "int64" in (dtype_of(start), dtype_of(var)) else dtype_of(start)
    if int_value(start) == 0:
        return cast_to(var, wide)
    return cast_to(start, wide) + cast_to(var, wide)


def _names(count: int) -> tuple[str, ...]:
    return (
        ("i", "j", "k", "l", "m", "n")[:count] if count <= 6 else tuple(f"i{axis}" for axis in range(count))
    )
