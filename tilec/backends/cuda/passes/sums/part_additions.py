"""Additions of one iteration to neighbours are iterations of their own.

for i, j in parallel(64, 32): C[i, j * 2] += s[i, j * 2]; C[i, j * 2 + 1] += s[i, j * 2 + 1]
->
for i, j in parallel(64, 64): C[i, j] += s[i, j]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from tvm import sym, tirx
from tvm.ir import TensorLoad

from tilec.ir.exprs import dtype_of, inlined, int_value, linear_in, loads, same_all, transform
from tilec.ir.nodes import Atomic, Bind, Block, If, Parallel, Stmt, walk
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.passes.base import BlockPass
from tilec.lowering.rewrite import rename

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


class PartAdditions(BlockPass):
    """In: Parallel loops. Out: where all that an iteration does behind names and tests is to add neighbours
    of one row to neighbours of another, as T.atomic_addx2 does, each of these has an iteration of its own: a
    thread adds as many at once as there are instructions for, and whole tiles leave as boxes."""

    def block(self, block: Block) -> list[Stmt]:
        """The block with its loops over single elements."""
        return [_parted(stmt) if isinstance(stmt, Parallel) else stmt for stmt in block]


def _parted(loop: Parallel) -> Parallel:
    additions, var = _additions(loop.body), loop.vars[-1]
    if len(additions) < 2 or loop.hints.given:
        return loop
    bound = values_of(walk(loop.body)).items()
    names = {name: value for name, value in bound if next(loads(value), None) is None}
    one, number = tirx.Var(str(var.name), dtype_of(var)), tirx.const(len(additions), dtype_of(var))
    made = _Neighbours(var, one, names).joined(additions)
    if made is None:
        return loop
    body = rename(_with_end(loop.body, made), {var: one // number})
    extents = (*loop.extents[:-1], sym.Analyzer().simplify(loop.extents[-1] * number))
    return replace(loop, vars=(*loop.vars[:-1], one), extents=extents, body=body)


def _additions(body: Block) -> tuple[Atomic, ...]:
    """What a body ends in, or what the test around its end does: additions alone, behind names."""
    end = tuple(stmt for stmt in body if not isinstance(stmt, Bind))
    if len(end) == 1 and isinstance(end[0], If) and not end[0].orelse:
        return _additions(end[0].then)
    plain = all(isinstance(stmt, Atomic) and stmt.kind == "add" and stmt.prev is None for stmt in end)
    return cast("tuple[Atomic, ...]", end) if plain else ()


def _with_end(body: Block, made: Atomic) -> Block:
    """A body with ``made`` in place of its additions."""
    names = tuple(stmt for stmt in body if isinstance(stmt, Bind))
    end = next(stmt for stmt in body if not isinstance(stmt, Bind))
    return (*names, replace(end, then=_with_end(end.then, made)) if isinstance(end, If) else made)


@dataclass(frozen=True)
class _Neighbours:
    """Elements that a loop over ``var`` takes several at a time, and one over ``one`` one by one. ``names``
    of its body are nothing but arithmetic."""

    var: Var
    one: Var
    names: Mapping[Var, Expr]

    def joined(self, additions: Sequence[Atomic]) -> Atomic | None:
        """One addition for all of these; None where they are none of neighbours to neighbours."""
        first = additions[0]
        sources = [source for stmt in additions for source in _sources(stmt.value)]
        alike = all(_are_alike(first, stmt) for stmt in additions) and len(sources) == len(additions)
        if not alike or any(not source.source.same_as(sources[0].source) for source in sources):
            return None
        added = self._single([stmt.indices for stmt in additions])
        read = self._single([tuple(source.indices) for source in sources])
        if added is None or read is None:
            return None
        element = tirx.BufferLoad(sources[0].source, list(read))
        value = transform(first.value, lambda node: element if node.same_as(sources[0]) else None)
        return replace(first, indices=added, value=value)

    def _single(self, places: Sequence[tuple[Expr, ...]]) -> tuple[Expr, ...] | None:
        """Where ``one`` is, of places that lie side by side."""
        (*outer, first), *_ = inside = [tuple(inlined(index, self.names) for index in at) for at in places]
        linear = linear_in(first, [self.var])
        beside = (
            same_all(at[:-1], tuple(outer)) and int_value(sym.Analyzer().simplify(at[-1] - first)) == step
            for step, at in enumerate(inside)
        )
        if not linear or int_value(linear[0]) != len(places) or not all(beside):
            return None
        return (*outer, linear[1] + self.one)


def _sources(value: Expr) -> list[TensorLoad]:
    """The element that a value is, converted or not."""
    inner = value.value if isinstance(value, tirx.Cast) else value
    return [inner] if isinstance(inner, TensorLoad) else []


def _are_alike(one: Atomic, other: Atomic) -> bool:
    alike = one.buffer.same_as(other.buffer) and one.order == other.order
    return alike and isinstance(one.value, tirx.Cast) == isinstance(other.value, tirx.Cast)
