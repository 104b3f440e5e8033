"""Reduce as accumulation in a Parallel loop.

reduce_sum(x[0:+8, 0:+64], s[0:+8], axis=1)
->
for i in parallel(8): s[i] = 0
for i, j in parallel(8, 64): s[i] = s[i] + x[i, j]
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import cast_to, dtype_of
from tilec.ir.nodes import Alloc, Block, Copy, Fill, Parallel, Reduce, Region, Stmt, Store
from tilec.ir.reductions import REDUCTIONS
from tilec.lowering.analysis.accesses import accesses
from tilec.lowering.analysis.accumulations import identity, joined
from tilec.lowering.math.float8 import FLOAT8_TYPES
from tilec.lowering.passes.base import BlockPass
from tilec.lowering.passes.expand_copies import add, expand_copy, expand_fill

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


class ExpandReduces(BlockPass):
    """In: Reduce. Out: none of them; each is a fill of the result with the identity (where it clears) and a
    Parallel over the source whose iterations accumulate into the result, each exactly once."""

    def block(self, block: Block) -> list[Stmt]:
        """The block without Reduce."""
        done: list[Stmt] = []
        for stmt in block:
            if isinstance(stmt, Reduce):
                done += _apart(stmt) if stmt.clear and _is_needed(stmt, done) else expand_reduce(stmt)
            else:
                done.append(stmt)
        return done


def _is_needed(stmt: Reduce, before: list[Stmt]) -> bool:
    """Whether the loops right before compute the source and touch the old result."""
    items = [item for loop in _trailing_loops(before) for item in accesses(loop.body)]
    writes = any(item.is_write and item.buffer.same_as(stmt.src.buffer) for item in items)
    return writes and any(item.buffer.same_as(stmt.dst.buffer) for item in items)


def _trailing_loops(block: list[Stmt]) -> list[Parallel]:
    loops: list[Parallel] = []
    for stmt in reversed(block):
        if not isinstance(stmt, Parallel):
            break
        loops.append(stmt)
    return loops


def _apart(stmt: Reduce) -> list[Stmt]:
    """The reduction into a tile of its own, which then replaces the result: the accumulation may then join
    the loops before, which still need the old one."""
    old = stmt.dst.buffer
    new = tirx.decl_buffer(stmt.dst.extent, str(old.dtype), f"{old.name}_new", scope="local.fragment")
    whole = Region(new, tuple(tirx.const(0, "int32") for _ in new.shape), stmt.dst.extent)
    moved = expand_copy(Copy(whole, stmt.dst, loc=stmt.loc))
    return [Alloc(new, loc=stmt.loc), *expand_reduce(replace(stmt, dst=whole)), moved]


def expand_reduce(stmt: Reduce) -> list[Stmt]:
    """A reduction as a fill, where it clears, and a loop."""
    dtype = str(stmt.dst.buffer.dtype)
    variables = tuple(_variable(f"r{axis}", extent) for axis, extent in enumerate(stmt.src.extent))
    source = tuple(add(start, var) for start, var in zip(stmt.src.start, variables, strict=True))
    term = cast_to(tirx.BufferLoad(stmt.src.buffer, list(source)), dtype)
    result = _result_indices(stmt, variables)
    old = tirx.BufferLoad(stmt.dst.buffer, list(result))
    store = Store(stmt.dst.buffer, result, _combined(stmt, old, term), loc=stmt.loc)
    loop = Parallel(variables, stmt.src.extent, (store,), loc=stmt.loc)
    if not stmt.clear:
        return [_magnitudes(stmt), loop] if stmt.kind == "absmax" else [loop]
    return [expand_fill(Fill(stmt.dst, identity(stmt.kind, dtype), loc=stmt.loc)), loop]


def _magnitudes(stmt: Reduce) -> Parallel:
    """The old results without their signs: the largest magnitude counts."""
    variables = tuple(_variable(f"m{axis}", extent) for axis, extent in enumerate(stmt.dst.extent))
    at = tuple(add(start, var) for start, var in zip(stmt.dst.start, variables, strict=True))
    old = tirx.BufferLoad(stmt.dst.buffer, list(at))
    store = Store(stmt.dst.buffer, at, _magnitude(old), loc=stmt.loc)
    return Parallel(variables, stmt.dst.extent, (store,), loc=stmt.loc)


def _variable(name: str, extent: int | Expr) -> Var:
    return tirx.Var(name, "int32" if isinstance(extent, int) else dtype_of(extent))


def _result_indices(stmt: Reduce, variables: tuple[Var, ...]) -> tuple[Expr, ...]:
    """The element of the result that an iteration belongs to."""
    rank = len(stmt.dst.start)
    kept = list(variables[: stmt.axis] + variables[stmt.axis + 1 :])
    if rank == len(variables):
        kept.insert(stmt.axis, None)
    kept += [None] * (rank - len(kept))
    return tuple(
        start if var is None else add(start, var) for start, var in zip(stmt.dst.start, kept, strict=True)
    )


def _magnitude(value: Expr) -> Expr:
    """Without its sign; TVM has no form of that for 8-bit floats."""
    dtype = dtype_of(value)
    if dtype in FLOAT8_TYPES:
        return cast_to(tirx.abs(cast_to(value, "float32")), dtype)
    return tirx.abs(value)


def _combined(stmt: Reduce, old: Expr, term: Expr) -> Expr:
    term = _magnitude(term) if REDUCTIONS[stmt.kind].magnitudes else term
    return joined(stmt.kind, old, term, stmt.nan_propagate)
