"""Additions to neighbours of one row, of neighbours of another, as one addition in a loop over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import TensorLoad

from tilec.ir.exprs import inlined, int_value, linear_in, same_all, transform
from tilec.ir.nodes import Atomic

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


@dataclass(frozen=True)
class Neighbours:
    """Elements that are taken one by one in a loop over ``one``: from the first on, or where a loop over
    ``var`` takes several at a time, all of its. ``names`` of its body are nothing but arithmetic."""

    one: Var
    var: Var | None = None
    names: Mapping[Var, Expr] = field(default_factory=dict)

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
        beside = (
            same_all(at[:-1], tuple(outer)) and int_value(sym.Analyzer().simplify(at[-1] - first)) == step
            for step, at in enumerate(inside)
        )
        if not all(beside):
            return None
        if self.var is None:
            return (*outer, first + self.one)
        linear = linear_in(first, [self.var])
        return (*outer, linear[1] + self.one) if linear and int_value(linear[0]) == len(places) else None


def _sources(value: Expr) -> list[TensorLoad]:
    """The element that a value is, converted or not."""
    inner = value.value if isinstance(value, tirx.Cast) else value
    return [inner] if isinstance(inner, TensorLoad) else []


def _are_alike(one: Atomic, other: Atomic) -> bool:
    alike = one.buffer.same_as(other.buffer) and one.order == other.order
    return alike and isinstance(one.value, tirx.Cast) == isinstance(other.value, tirx.Cast)
