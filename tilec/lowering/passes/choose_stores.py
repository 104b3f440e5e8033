"""Branches of an elementwise loop whose sides store the same elements choose values.

if c == y[b]: X[b, c] = p - 1        X[b, c] = if_then_else(c == y[b], p - 1, p)
else:         X[b, c] = p       ->
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import (
    cast_to,
    dtype_of,
    inlined,
    int_value,
    linear_in,
    loads,
    same_all,
    uses,
    variables_of,
)
from tilec.ir.nodes import Block, If, Parallel, Stmt, Store, children, walk, with_children
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.conditions import gap
from tilec.lowering.passes.base import BlockPass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr, Var


@dataclass(frozen=True)
class ChooseStores(BlockPass):
    """In: Parallel loops. Out: in these, a branch either side of which stores to the same elements in the
    same order is stores of choices, where it is on what changes along the last variable, so that vectors
    need no branch, or where one side stores numbers to tiles: a load of rows that are there, as an author who
    names the choice writes it.

    Attributes:
        parts: loops are parted by numbers (`j < 64`), so that vectors meet no such branch, and each side
            reads and computes what it takes alone: these branches stay."""

    parts: bool = False

    def block(self, block: Block) -> list[Stmt]:
        """The block with the choices of its loops."""
        return [self._loop(stmt) if isinstance(stmt, Parallel) else stmt for stmt in block]

    def _loop(self, loop: Parallel) -> Parallel:
        if not any(isinstance(stmt, If) and stmt.orelse for stmt in walk(loop.body)):
            return loop
        values = values_of(walk(loop.body))
        return replace(loop, body=self._block(loop.body, loop.vars[-1], values))

    def _block(self, block: Block, var: Var, values: Mapping[Var, Expr]) -> Block:
        return tuple(made for stmt in block for made in self._stmt(stmt, var, values))

    def _stmt(self, stmt: Stmt, var: Var, values: Mapping[Var, Expr]) -> Block:
        made = with_children(stmt, [self._block(inner, var, values) for inner in children(stmt)])
        if not isinstance(made, If) or not made.orelse:
            return (made,)
        then, orelse, cond = _stores(made.then), _stores(made.orelse), inlined(made.cond, values)
        lanes = uses(cond, (var,)) and not (self.parts and _parts(cond, var))
        chosen = lanes or _are_fills(then) or _are_fills(orelse)
        if not chosen or not then or len(then) != len(orelse) or not all(map(_are_alike, then, orelse)):
            return (made,)
        changed = {store.buffer for store in then}
        if len(then) > 1 and any(load.source in changed for load in loads(cond)):
            return (made,)
        return tuple(_choice(made.cond, one, other) for one, other in zip(then, orelse, strict=True))


def _parts(cond: Expr, var: Var) -> bool:
    """Whether a condition compares a variable with a number."""
    positive = gap(cond)
    linear = linear_in(positive, [var]) if positive is not None else []
    return bool(linear) and all(int_value(part) is not None for part in linear)


def _stores(side: Block) -> list[Store]:
    """The stores of a side that does nothing else, without its names; none where these may read what it
    stores in front of them."""
    stores = [stmt for stmt in side if isinstance(stmt, Store)]
    names = values_of(side)
    if len(stores) + len(names) < len(side) or (names and len(stores) > 1):
        return []
    return [
        replace(
            store,
            indices=tuple(inlined(index, names) for index in store.indices),
            value=inlined(store.value, names),
        )
        for store in stores
    ]


def _are_fills(stores: list[Store]) -> bool:
    return all(store.buffer.scope() != "global" and _is_number(store.value) for store in stores)


def _is_number(value: Expr) -> bool:
    return not variables_of((value,)) and next(loads(value), None) is None


def _are_alike(one: Store, other: Store) -> bool:
    return one.buffer.same_as(other.buffer) and same_all(one.indices, other.indices)


def _choice(cond: Expr, one: Store, other: Store) -> Store:
    value, otherwise = one.value, other.value
    if dtype_of(value) != dtype_of(otherwise):
        value, otherwise = (cast_to(each, str(one.buffer.dtype)) for each in (value, otherwise))
    return replace(one, value=tirx.if_then_else(cond, value, otherwise))
