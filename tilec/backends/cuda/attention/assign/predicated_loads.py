"""Loads with a condition on their row become plain loads and rows of zeros behind them.

    for j, d in parallel(rows, columns): tile[j, d] = if_then_else(keep(j), source[f(j), d], 0)

TMA brings the whole box; where `keep` fails the row is set to 0 afterwards, whatever was there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.backends.cuda.attention.nodes import ZeroRows
from tilec.backends.cuda.warp_roles.epilogue import call_name
from tilec.ir.exprs import dtype_of, int_value, is_zero, substitute, uses
from tilec.ir.nodes import Bind, Block, Copy, Parallel, Region, Stmt, Store

if TYPE_CHECKING:
    from tvm.ir import Expr, TensorLoad, Var


def plain_loads(block: Block) -> Block:
    """``block`` with every such loop as a Copy and a ZeroRows."""
    return tuple(new for stmt in block for new in _plain(stmt))


def _plain(stmt: Stmt) -> tuple[Stmt, ...]:
    if not isinstance(stmt, Parallel) or len(stmt.vars) != 2 or len(stmt.body) != 1:
        return (stmt,)
    (store,) = stmt.body
    if not isinstance(store, Store) or store.buffer.scope() != "shared.dyn":
        return (stmt,)
    tile = _whole_tile(stmt, store)
    parts = _conditional_load(store.value)
    if tile is None or parts is None:
        return (stmt,)
    keep, load = parts
    source = _box(load, stmt)
    row, column = stmt.vars
    if source is None or uses(keep, (column,)):
        return (stmt,)
    kept = Bind(tirx.Var("kept", "bool"), keep)
    return Copy(source, tile, loc=stmt.loc), ZeroRows(tile, row, (kept,), loc=stmt.loc)


def _whole_tile(loop: Parallel, store: Store) -> Region | None:
    """The tile, where the loop writes each of its elements at its own index."""
    shape = tuple(int_value(extent) or 0 for extent in store.buffer.shape)
    own = len(shape) == 2 and all(
        index.same_as(var) for index, var in zip(store.indices, loop.vars, strict=True)
    )
    if not own or shape != tuple(int_value(extent) for extent in loop.extents):
        return None
    return Region(store.buffer, (tirx.const(0, "int32"),) * 2, shape)


def _conditional_load(value: Expr) -> tuple[Expr, TensorLoad] | None:
    """(condition, element) of ``if_then_else(condition, element, 0)``."""
    if call_name(value) != "if_then_else":
        return None
    keep, load, other = value.args
    if not hasattr(load, "source") or not is_zero(other):
        return None
    return keep, load


def _box(load: TensorLoad, loop: Parallel) -> Region | None:
    """The region of a global buffer that the loop reads: each variable moves an axis of its own by one."""
    if load.source.scope() != "global" or not load.indices[-1].same_as(loop.vars[1]):
        return None
    moved = [axis for axis, index in enumerate(load.indices[:-1]) if uses(index, loop.vars)]
    if len(moved) != 1:
        return None
    axis, zero = moved[0], tirx.const(0, "int32")
    start = [*load.indices[:-1], zero]
    first = _first(start[axis], loop.vars[0])
    if first is None or uses(first, loop.vars):
        return None
    start[axis] = first
    extent = tuple(
        loop.extents[0] if at == axis else loop.extents[1] if at == len(start) - 1 else 1
        for at in range(len(start))
    )
    return Region(load.source, tuple(start), extent)


def _first(index: Expr, var: Var) -> Expr | None:
    """``index`` at ``var`` = 0, where it moves by one with it."""
    analyzer = sym.Analyzer()
    if int_value(analyzer.simplify(substitute(index, {var: var + 1}) - index)) != 1:
        return None
    return analyzer.simplify(substitute(index, {var: tirx.const(0, dtype_of(var))}))
