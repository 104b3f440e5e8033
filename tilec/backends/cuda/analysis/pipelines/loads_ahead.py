"""What of a pipelined loop can run trips ahead of it: copies and gathers that fill shared tiles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.accesses.gathers import Gather, gather_of
from tilec.backends.cuda.analysis.accesses.vectors import vector_width
from tilec.backends.cuda.analysis.layouts.tiles import is_whole
from tilec.backends.cuda.nodes import AsyncCopy, AsyncGather
from tilec.ir.exprs import inlined, int_value, substitute
from tilec.ir.layout_algebra import chunk
from tilec.ir.nodes import Alloc, Copy, If, Parallel, Stmt, Store, is_global
from tilec.lowering.emission.memory import tile_bytes
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.expand_copies import expand_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tvm.ir import Expr, Var

    from tilec.ir.hints import Hints
    from tilec.ir.layout import Layout
    from tilec.ir.nodes import Region
    from tilec.lowering.analysis.facts import Facts

#: Bytes that one cp.async moves.
ASYNC_BYTES = (4, 8, 16)


@dataclass(frozen=True, eq=False)
class Load(ABC):
    """A statement that fills all of the shared ``tile`` from ``source`` in global memory. ``writer`` is the
    statement, or the one inside that names the tile; ``places`` are the expressions that decide what it
    reads, ``vars`` variables of its own."""

    stmt: Copy | Parallel | If
    writer: Stmt
    tile: Var
    source: Var
    places: tuple[Expr, ...]
    vars: tuple[Var, ...]

    @property
    def hints(self) -> Hints:
        """What its author asks for."""
        assert not isinstance(self.stmt, If)
        return self.stmt.hints

    @property
    def bytes(self) -> int:
        """Of the tile, row by row."""
        return tile_bytes(Alloc(self.tile))

    @abstractmethod
    def width(self, values: Mapping[Var, Expr], facts: Facts) -> int:
        """Elements along the last axis that move at once; 0 where elements change their type. ``values`` are
        the bindings of the loop's body."""

    @abstractmethod
    def asynchronous(
        self, width: int, values: Mapping[Var, Expr], trip: Mapping[Var, Expr], facts: Facts
    ) -> AsyncCopy | AsyncGather | If:
        """The load as asynchronous copies, with variables of the ``trip`` replaced."""

    @abstractmethod
    def into(
        self, tile: Var, values: Mapping[Var, Expr], trip: Mapping[Var, Expr], facts: Facts
    ) -> Copy | Parallel | If:
        """The load into another ``tile`` of its shape, with variables of the ``trip`` replaced; a choice
        between elements and zeros is left to `out_of`: it would wait for them."""

    @abstractmethod
    def out_of(self, tile: Var) -> Copy | Parallel | If:
        """What fills the load's tile from one that `into` has filled."""


@dataclass(frozen=True, eq=False)
class CopyLoad(Load):
    """A Copy of a region."""

    stmt: Copy

    def width(self, values: Mapping[Var, Expr], facts: Facts) -> int:
        """See `Load`."""
        if str(self.source.dtype) != str(self.tile.dtype):
            return 0
        start = tuple(inlined(start, values) for start in self.places)
        return async_width(replace(self.stmt, src=replace(self.stmt.src, start=start)), facts)

    def asynchronous(
        self, width: int, values: Mapping[Var, Expr], trip: Mapping[Var, Expr], facts: Facts
    ) -> AsyncCopy:
        """See `Load`."""
        src, evict = self._source(values, trip), self.hints.eviction
        return AsyncCopy(src, self.stmt.dst, width, evict, loc=self.stmt.loc)

    def into(self, tile: Var, values: Mapping[Var, Expr], trip: Mapping[Var, Expr], facts: Facts) -> Copy:
        """See `Load`."""
        to = replace(self.stmt.dst, buffer=tile)
        return replace(self.stmt, src=self._source(values, trip), dst=to)

    def out_of(self, tile: Var) -> Copy:
        """See `Load`."""
        dst = self.stmt.dst
        return Copy(replace(dst, buffer=tile), dst, loc=self.stmt.loc)

    def _source(self, values: Mapping[Var, Expr], trip: Mapping[Var, Expr]) -> Region:
        src = self.stmt.src
        return replace(src, start=tuple(substitute(inlined(start, values), trip) for start in src.start))


@dataclass(frozen=True, eq=False)
class GatherLoad(Load):
    """A loop that computes where it reads."""

    stmt: Parallel
    gather: Gather

    def width(self, values: Mapping[Var, Expr], facts: Facts) -> int:
        """See `Load`."""
        return self.gather.at(_written_out(values)).width(facts)

    def asynchronous(
        self, width: int, values: Mapping[Var, Expr], trip: Mapping[Var, Expr], facts: Facts
    ) -> AsyncGather:
        """See `Load`."""
        moved, value = self._moved(values, trip, facts)
        store = Store(self.tile, moved.vars, self._chosen(moved, value), loc=self.stmt.loc)
        evict = self.hints.eviction
        return AsyncGather(moved.vars, moved.extents, (store,), width, evict, loc=self.stmt.loc)

    def into(self, tile: Var, values: Mapping[Var, Expr], trip: Mapping[Var, Expr], facts: Facts) -> Parallel:
        """See `Load`."""
        moved, value = self._moved(values, trip, facts)
        store = Store(tile, moved.vars, value, loc=self.stmt.loc)
        return replace(self.stmt, vars=moved.vars, body=(store,))

    def out_of(self, tile: Var) -> Parallel:
        """See `Load`."""
        here = self.gather.at({})
        held = tirx.BufferLoad(tile, list(here.vars))
        store = Store(self.tile, here.vars, self._chosen(here, held), loc=self.stmt.loc)
        return Parallel(here.vars, self.stmt.extents, (store,), loc=self.stmt.loc)

    def _moved(
        self, values: Mapping[Var, Expr], trip: Mapping[Var, Expr], facts: Facts
    ) -> tuple[Gather, Expr]:
        """The gather at another place, and the element that it reads. Places are simplified: a page may be
        known to start with the tile."""
        there = {var: substitute(value, trip) for var, value in _written_out(values).items()}
        moved = self.gather.at({**there, **trip})
        for var, extent in zip(moved.vars, moved.extents, strict=True):
            facts.bind_range(var, 0, extent)
        return moved, tirx.BufferLoad(self.source, [facts.simplify(i) for i in moved.source.indices])

    def _chosen(self, gather: Gather, value: Expr) -> Expr:
        """``value``, or zero where a gather's condition does not hold."""
        zero = tirx.const(0, str(self.tile.dtype))
        return value if gather.cond is None else tirx.if_then_else(gather.cond, value, zero)


@dataclass(frozen=True, eq=False)
class GuardedLoad(Load):
    """A load in trips where ``cond`` holds."""

    stmt: If
    load: Load
    cond: Expr

    @property
    def hints(self) -> Hints:
        """See `Load`."""
        return self.load.hints

    def width(self, values: Mapping[Var, Expr], facts: Facts) -> int:
        """See `Load`."""
        return self.load.width(values, facts)

    def asynchronous(
        self, width: int, values: Mapping[Var, Expr], trip: Mapping[Var, Expr], facts: Facts
    ) -> If:
        """See `Load`."""
        return self._where(self.load.asynchronous(width, values, trip, facts), values, trip)

    def into(self, tile: Var, values: Mapping[Var, Expr], trip: Mapping[Var, Expr], facts: Facts) -> If:
        """See `Load`."""
        return self._where(self.load.into(tile, values, trip, facts), values, trip)

    def out_of(self, tile: Var) -> If:
        """See `Load`."""
        return replace(self.stmt, then=(self.load.out_of(tile),))

    def _where(self, stmt: Stmt, values: Mapping[Var, Expr], trip: Mapping[Var, Expr]) -> If:
        """``stmt`` where the condition holds in another trip."""
        return replace(self.stmt, cond=substitute(inlined(self.cond, values), trip), then=(stmt,))


def load_of(stmt: Stmt) -> Load | None:
    """A statement as a load of a whole shared tile from global memory, None where it is none."""
    if isinstance(stmt, If):
        return _guarded_load(stmt)
    if isinstance(stmt, Parallel):
        gather = gather_of(stmt)
        return None if gather is None else _gather_load(stmt, gather)
    if not isinstance(stmt, Copy) or not is_global(stmt.src.buffer):
        return None
    fills = stmt.dst.buffer.scope() == "shared.dyn" and is_whole(stmt.dst)
    return copy_load(stmt) if fills else None


def _guarded_load(stmt: If) -> Load | None:
    load = load_of(stmt.then[0]) if len(stmt.then) == 1 and not stmt.orelse else None
    if load is None or isinstance(load, GuardedLoad):
        return None
    places = (*load.places, stmt.cond)
    return GuardedLoad(stmt, load.writer, load.tile, load.source, places, load.vars, load, stmt.cond)


def copy_load(stmt: Copy) -> CopyLoad:
    """A copy from global memory to all of a shared tile, or to a part of one."""
    return CopyLoad(stmt, stmt, stmt.dst.buffer, stmt.src.buffer, stmt.src.start, ())


def async_elements(load: Load, values: Mapping[Var, Expr], facts: Facts, asked: Layout | None) -> int:
    """Elements that one cp.async of a load moves, into a tile with the layout ``asked``; 0 where it cannot be
    used. ``values`` are bindings of names in its places."""
    width = load.width(values, facts)
    width = width if asked is None else min(width, chunk(asked))
    most = load.hints.coalesced_width
    width = width if most is None else min(width, 1 << (most.bit_length() - 1))
    return width if width * element_bytes(str(load.tile.dtype)) in ASYNC_BYTES else 0


def _gather_load(loop: Parallel, gather: Gather) -> Load:
    return GatherLoad(
        loop, loop.body[-1], gather.tile, gather.source.source, gather.places, gather.vars, gather
    )


def async_width(copy: Copy, facts: Facts, of_source: Callable[..., int] = vector_width) -> int:
    """The vector width that both sides of a copy along its last axis allow, 0 where elements change their
    type; ``of_source`` tells that of what is read."""
    loop = expand_copy(copy)
    if not isinstance(loop, Parallel):
        return 0
    (store,) = loop.body
    assert isinstance(store, Store)
    var, extent = loop.vars[-1], int_value(loop.extents[-1]) or 1
    limit = extent & -extent
    source = store.value
    if not isinstance(source, TensorLoad):
        return 0
    width = vector_width(copy.dst.buffer, store.indices, var, limit, facts)
    return of_source(copy.src.buffer, tuple(source.indices), var, width, facts)


def _written_out(values: Mapping[Var, Expr]) -> dict[Var, Expr]:
    """The values without each other's names."""
    return {var: inlined(value, values) for var, value in values.items()}
