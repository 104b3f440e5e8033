"""Loops that fill a shared tile with elements of global memory whose places are computed: rows of a paged
cache, rows behind a mask."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Call, TensorLoad

from tilec.backends.cuda.analysis.accesses.vectors import agree, vector_width
from tilec.ir.exprs import dtype_of, inlined, int_value, substitute, uncast
from tilec.ir.nodes import Bind, Parallel, Store, is_global
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.whole_stores import stores_each_in_order
from tilec.lowering.tile_axes import digits_of, place_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr, Var

    from tilec.backends.cuda.nodes import ThreadLoop
    from tilec.lowering.analysis.facts import Facts

_CHOICES = ("prim.if_then_else", "tirx.if_then_else")


@dataclass(frozen=True, eq=False)
class Gather:
    """``tile[vars] = source if cond else 0`` for every element of a tile; no ``cond``: always ``source``."""

    vars: tuple[Var, ...]
    extents: tuple[int, ...]
    tile: Var
    source: TensorLoad
    cond: Expr | None

    @property
    def places(self) -> tuple[Expr, ...]:
        """What decides where it reads."""
        indices = tuple(self.source.indices)
        return indices if self.cond is None else (*indices, self.cond)

    def width(self, facts: Facts) -> int:
        """The vector along the last variable that both sides allow, and for which the condition is one."""
        last, extent = self.vars[-1], self.extents[-1]
        limit = extent & -extent
        for axis, var in enumerate(self.vars):
            facts.bind_range(var, 0, self.extents[axis])
        width = vector_width(self.tile, self.vars, last, limit, facts)
        width = vector_width(self.source.source, tuple(self.source.indices), last, width, facts)
        while width > 1 and self.cond is not None and not agree(self.cond, last, width, facts):
            width //= 2
        return width

    def at(self, values: Mapping[Var, Expr]) -> Gather:
        """The same with variables of its places replaced, over loop variables of its own."""
        own = {var: tirx.Var(str(var.name), dtype_of(var)) for var in self.vars}
        names = {**values, **own}
        source = tirx.BufferLoad(self.source.source, [substitute(i, names) for i in self.source.indices])
        cond = None if self.cond is None else substitute(self.cond, names)
        return Gather(tuple(own.values()), self.extents, self.tile, source, cond)


def only_store(loop: Parallel | ThreadLoop) -> Store:
    """What a loop does in each iteration, where that is one store."""
    (store,) = loop.body
    assert isinstance(store, Store)
    return store


def store_of(loop: Parallel) -> Store | None:
    """The store of a loop that writes every element of a tile once and does nothing else; None of others."""
    *binds, store = loop.body
    if not isinstance(store, Store) or not all(isinstance(stmt, Bind) for stmt in binds):
        return None
    extents = [int_value(extent) or 0 for extent in loop.extents]
    shape = [int_value(extent) or 0 for extent in store.buffer.shape]
    names = values_of(binds)
    place = place_of([inlined(index, names) for index in store.indices], shape)
    counts = digits_of(place, loop.vars, extents) is not None and prod(extents) == prod(shape)
    return store if counts else None


def gather_of(loop: Parallel) -> Gather | None:
    """A loop as a gather; None where it is something else."""
    *binds, store = loop.body
    extents = tuple(int_value(extent) or 0 for extent in loop.extents)
    if not isinstance(store, Store) or not all(isinstance(stmt, Bind) for stmt in binds):
        return None
    if store.buffer.scope() != "shared.dyn" or not stores_each_in_order(store, loop):
        return None
    names = values_of(binds)
    cond, source = masked(inlined(store.value, names))
    if not isinstance(source, TensorLoad) or dtype_of(source) != str(store.buffer.dtype):
        return None
    if not is_global(source.source):
        return None
    return Gather(loop.vars, extents, store.buffer, source, cond)


def masked(value: Expr) -> tuple[Expr | None, Expr]:
    """The condition and the value of ``value if cond else 0``."""
    if not isinstance(value, Call) or str(value.op.name) not in _CHOICES:
        return None, value
    cond, chosen, other = value.args
    other = uncast(other)
    zero = isinstance(other, (tirx.IntImm, tirx.FloatImm)) and other.value == 0
    return (cond, chosen) if zero else (None, value)
