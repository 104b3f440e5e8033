"""Loops that fill a tile with a box of a tensor, element by element, are copies of it.

for i, j in parallel(128, 64):
    a[i, j] = if_then_else(m + i < M, A[m + i, k + j], 0)
    b[i, j] = B[n + i, k + j]
->
copy(A[m:+128, k:+64], a[0:+128, 0:+64])
copy(B[n:+128, k:+64], b[0:+128, 0:+64])

What only copies fill products read where it lies (`forward_operands`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.ir.analysis.known_trips import counts_from_zero
from tilec.ir.exprs import choice_of, dtype_of, inlined, int_value, uncast
from tilec.ir.nodes import (
    PRODUCTS,
    Bind,
    Block,
    Copy,
    For,
    Launch,
    Parallel,
    Region,
    Stmt,
    Store,
    is_global,
    walk,
)
from tilec.ir.traits import read
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.element_boxes import box_of, is_inside
from tilec.lowering.analysis.uses import written_in
from tilec.lowering.analysis.whole_stores import stores_each_in_order
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr


class CopyLoops(LaunchPass):
    """In: launches. Out: in those with products, no loop does nothing but to fill whole tiles with boxes of
    tensors, each variable moving an axis of both by one, in the same order; a condition may say that the
    element lies inside of its tensor. These are copies: what they read outside of a tensor is 0 as well."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with copies."""
        if not any(isinstance(stmt, PRODUCTS) for stmt in walk(launch.body)):
            return launch
        body = rewrite_blocks(launch.body, lambda block: [made for stmt in block for made in _copied(stmt)])
        return replace(launch, body=body)


def _copied(stmt: Stmt) -> Block:
    """A loop as the copies of its stores; as it is where one is something else."""
    loop = _nest(stmt)
    if loop is None or loop.hints.given:
        return (stmt,)
    names = [inner for inner in loop.body if isinstance(inner, Bind)]
    stores = [inner for inner in loop.body if isinstance(inner, Store)]
    if not stores or len(names) + len(stores) < len(loop.body) or _reads_its_own(loop):
        return (stmt,)
    copies = [_copy(loop, store, names) for store in stores]
    whole = [copy for copy in copies if copy is not None]
    apart = len({store.buffer for store in stores}) == len(stores)
    return tuple(whole) if apart and len(whole) == len(copies) else (stmt,)


def _nest(stmt: Stmt) -> Parallel | None:
    """Loops one in another, of which some are Parallel, as one Parallel; None of other statements."""
    if not isinstance(stmt, (For, Parallel)):
        return None
    if isinstance(stmt, For) and (not counts_from_zero(stmt) or int_value(stmt.stop) is None):
        return None
    inner = _nest(stmt.body[0]) if len(stmt.body) == 1 else None
    if isinstance(stmt, Parallel) and inner is None:
        return stmt
    outer = ((stmt.var,), (stmt.stop,)) if isinstance(stmt, For) else (stmt.vars, stmt.extents)
    if inner is None:
        return Parallel(*outer, stmt.body, loc=stmt.loc)
    return replace(inner, vars=(*outer[0], *inner.vars), extents=(*outer[1], *inner.extents))


def _reads_its_own(loop: Parallel) -> bool:
    changed = written_in(loop.body)
    return any(buffer in changed for inner in loop.body for buffer in read(inner))


def _copy(loop: Parallel, store: Store, names: Sequence[Bind]) -> Copy | None:
    """A store of a loop over a tile as a copy; None where it is none."""
    extents = tuple(int_value(extent) or 0 for extent in loop.extents)
    if is_global(store.buffer) or not stores_each_in_order(store, loop):
        return None
    cond, value = _masked(inlined(store.value, values_of(names)))
    dtype = str(store.buffer.dtype)
    source = value.value if isinstance(value, tirx.Cast) and dtype_of(value) == dtype else value
    if not isinstance(source, TensorLoad) or not is_global(source.source):
        return None
    if cond is not None and not is_inside(cond, source.source, list(source.indices)):
        return None
    box = box_of(source.source, list(source.indices), loop.vars, extents)
    if box is None:
        return None
    start = tuple(tirx.const(0, "int32") for _ in extents)
    return Copy(box, Region(store.buffer, start, extents), loc=store.loc)


def _masked(value: Expr) -> tuple[Expr | None, Expr]:
    """The condition and the value of ``value if cond else 0``."""
    choice = choice_of(value)
    if choice is None:
        return None, value
    cond, chosen, other = choice
    other = uncast(other)
    zero = isinstance(other, (tirx.IntImm, tirx.FloatImm)) and other.value == 0
    return (cond, chosen) if zero else (None, value)
