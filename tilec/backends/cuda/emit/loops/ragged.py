"""RaggedThreadLoop: vectors where a test says so as the loop runs, element by element at the ends of rows.

All vectors of a thread are asked for before one of them is waited for: a branch in between would keep the
loads behind it from starting. Then what the body computes follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.backends.cuda.analysis.accesses.low_places import (
    element_place,
    low_bits,
    low_place,
    uniform_factors,
)
from tilec.backends.cuda.analysis.accesses.vectors import widest
from tilec.backends.cuda.device.ends import read_end, realign, write_end
from tilec.backends.cuda.device.floats import PAIRED
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.loops.access_notes import Moved, take_road
from tilec.backends.cuda.emit.loops.spots import Spot, Spots, bytes_of, rest
from tilec.backends.cuda.emit.loops.thread_loop import Iterations, over_layout
from tilec.backends.cuda.emit.loops.vector import Vector
from tilec.backends.cuda.emit.loops.vector_loads import VectorLoads
from tilec.backends.cuda.emit.loops.vector_moves import packed_pairs, read_vector, store_vector
from tilec.backends.cuda.emit.loops.vector_stores import Kept, VectorStores
from tilec.backends.cuda.emit.memory import zeroed
from tilec.backends.cuda.emit.products.lane_digits import convert_sum
from tilec.backends.cuda.emit.statements import call, emit, once_tests
from tilec.backends.cuda.nodes import RaggedThreadLoop, RemoteStore
from tilec.ir.exprs import all_of, dtype_of, same, transform, uses
from tilec.ir.layout_algebra import extent_of
from tilec.ir.nodes import Bind, Stmt, Store, walk
from tilec.ir.traits import expressions
from tilec.lowering.analysis.accesses import Access
from tilec.lowering.emission.statements import guarded, learn_binding, sequence
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr

_ZERO = tirx.const(0, "int32")


@dataclass(frozen=True, eq=False)
class Read:
    """A read of neighbours: what ``tmp`` holds of it in all vectors of a thread, ``width`` to an access;
    ``above``: the vectors behind those, where places are no multiples of the width."""

    load: TensorLoad
    tmp: Var
    width: int
    above: Var | None

    @property
    def buffer(self) -> Var:
        """The tensor."""
        found: Var = self.load.source
        return found


class Ragged(Vector):
    """The code of a loop."""

    def __init__(self, stmt: RaggedThreadLoop, ctx: DeviceContext) -> None:
        super().__init__(stmt, ctx)
        self.loads, self.stores = RaggedLoads(self), RaggedStores(self)
        self.spots = Spots(self.body, self.var, ctx)
        self.names = self.spots.names
        self.reads: list[Read] = []
        self.count = extent_of(stmt.layout, "reg")

    def phases(self) -> tirx.Stmt:
        """Loads of whole vectors, elements of others, vectors put together, the body."""
        body = self._over(self._compute, self.once)
        parts = [part for read in self.reads for part in self._zeros(read.tmp)]
        plain = self._plain()
        loads = self._loaded(self.reads)
        if plain is not None and loads is not None:
            uniform, reads = plain
            loads = tirx.IfThenElse(uniform, self._loaded(reads), loads)
        return sequence([part for part in (*parts, loads, body) if part is not None])

    def _zeros(self, tmp: Var) -> list[tirx.Stmt]:
        return [tirx.AllocBuffer(tmp), zeroed(tmp, _ZERO, self.count, self.ctx)]

    def _loaded(self, reads: Sequence[Read]) -> tirx.Stmt | None:
        """All reads of the thread."""
        parts: list[tirx.Stmt | None] = []
        for read in reads:
            parts += [] if read.above is None else self._zeros(read.above)
        for phase in (self._ask, self._read_ends, self._put_together):
            parts += [self._over(partial(self._each, phase, read)) for read in reads]
        found = [part for part in parts if part is not None]
        return sequence(found) if found else None

    def _plain(self) -> tuple[Expr, list[Read]] | None:
        """What holds, for all threads alike, where all reads that may lie between vectors begin at them, and
        what they are there."""
        conds: list[Expr] = []
        for read in (read for read in self.reads if read.above is not None):
            found = self._between(read.buffer, read.load.indices)
            factors = None if found is None else uniform_factors(found, self.width, self.ctx.facts)
            if self.names is not None or not factors:
                return None
            for factor in factors:
                low = low_bits(self.ctx.value(factor), self.width)
                conds.append(tirx.EQ(low, _ZERO))
        return (all_of(conds), [replace(read, above=None) for read in self.reads]) if conds else None

    def _over(
        self, body: Callable[[], tirx.Stmt | None], reads: Sequence[tirx.Bind] = ()
    ) -> tirx.Stmt | None:
        stmt = self.stmt
        return over_layout(Iterations.of(stmt)._replace(vector=self.width), body, self.ctx, reads=reads)

    def _each(self, phase: Callable[[Read, int], list[tirx.Stmt]], read: Read) -> tirx.Stmt | None:
        """A step of a read, for each access of a vector."""
        name, parts = self._shift(), []
        for first in range(0, self.width, read.width):
            with self.standing(first):
                parts += phase(read, first)
        return sequence([*name, *parts]) if parts else None

    def _shift(self) -> list[tirx.Stmt]:
        """Names the shift of columns."""
        made = None if self.names is None else emit(self.names.shift, self.ctx)
        return [] if made is None else [made]

    @contextmanager
    def standing(self, first: int) -> Iterator[None]:
        """Within the context the variable stands at an element of the vector, as its digits are told."""
        base = convert_sum(list(self.ctx.digits[self.var]), dtype_of(self.var))
        with self.ctx.scope():
            self.ctx.env[self.var] = base + tirx.const(first, dtype_of(self.var))
            yield

    def _number(self, first: int) -> Expr:
        """The register of an element of the vector at hand."""
        return self.ctx.place(self.stmt.layout, self.stmt.vars) + tirx.const(first, "int32")

    # ---- loads ----

    def is_aligned(self, buffer: Var, indices: Sequence[Expr]) -> bool:
        """Whether whole vectors surely begin at multiples of their width."""
        facts, place = self.ctx.facts, self._between(buffer, indices)
        shift = _ZERO if self.names is None else facts.inline(self.names.shift.var)
        return place is not None and same(low_place(place, self.width, self.stmt, facts), shift)

    def _between(self, buffer: Var, indices: Sequence[Expr]) -> Expr | None:
        """Where the columns of an access begin, but for the variable and their shift."""
        *rows, last = self.spots.straight(indices)
        column, rows = self.spots.column(last), [self.ctx.facts.inline(index) for index in rows]
        return None if column is None else element_place(buffer, (*rows, column))

    def _ask(self, read: Read, first: int) -> list[tirx.Stmt]:
        """Asks for the whole vectors."""
        ctx, number, width = self.ctx, self._number(first), read.width
        spot = self._spot(read)
        if read.above is None:
            return [guarded(read_vector(read.buffer, spot.place, read.tmp, number, width, ctx), spot.whole)]
        at = tirx.Bind(ctx.fresh(f"{read.buffer.name}_at", "int64"), spot.place)
        low = at.var - tirx.Cast("int64", rest(at.var, width))
        behind = low + tirx.const(width, "int64")
        tests = [*spot.whole, self._is_inside(read.buffer, at.var, width)]
        between = tirx.NE(rest(at.var, width), _ZERO)
        return [
            at,
            guarded(read_vector(read.buffer, low, read.tmp, number, width, ctx), tests),
            guarded(read_vector(read.buffer, behind, read.above, number, width, ctx), [*tests, between]),
        ]

    def _is_inside(self, buffer: Var, place: Expr, width: int) -> Expr:
        """Whether the vectors that hold a whole one end before the tensor does."""
        storage = self.ctx.storage(buffer)
        last = storage.offset([self.ctx.value(extent) - 1 for extent in storage.shape])
        above = tirx.const(width - 1, dtype_of(place))
        return tirx.bitwise_or(place + above, above) <= last

    def _read_ends(self, read: Read, first: int) -> list[tirx.Stmt]:
        """Reads by elements what is no whole vector."""
        spot = self._spot(read)
        whole = list(spot.whole)
        if read.above is None and spot.is_even:
            return []
        if read.above is not None:
            whole.append(self._is_inside(read.buffer, spot.place, read.width))
        if not whole:
            return []
        made = read_end(*bytes_of(read.buffer, read.width)).call(*self._end(read, spot, first))
        return [guarded(call(made), [*self.begun(spot), tirx.Not(all_of(whole))])]

    def _put_together(self, read: Read, first: int) -> list[tirx.Stmt]:
        """Makes vectors of the two that hold them."""
        if read.above is None:
            return []
        spot = self._spot(read)
        behind, number = rest(spot.place, read.width), self._number(first)
        helper = realign(*bytes_of(read.buffer, read.width))
        made = helper.call(read.tmp.ptr_to([number]), read.above.ptr_to([number]), behind)
        inside = self._is_inside(read.buffer, spot.place, read.width)
        return [guarded(call(made), [tirx.NE(behind, _ZERO), *spot.whole, inside])]

    def _spot(self, read: Read) -> Spot:
        return self.spots.at(read.buffer, read.load.indices, read.width)

    def _end(self, read: Read, spot: Spot, first: int) -> list[Expr]:
        """What helpers for ends of rows take."""
        to = read.tmp.ptr_to([self._number(first)])
        return [to, self.start(read.buffer), spot.place, *self.row(spot)]

    def start(self, buffer: Var) -> Expr:
        """The address of a tensor's first element."""
        return self.ctx.storage(buffer).data.ptr_to([_ZERO])

    def row(self, spot: Spot) -> list[Expr]:
        """What tells the elements of a vector at the end of a row."""
        return [spot.index, spot.extent, spot.turned, tirx.const(self.stmt.extents[-1], "int32")]

    def begun(self, spot: Spot) -> list[Expr]:
        """What holds where a vector has elements of its row."""
        return spot.has_elements(self.names is not None)

    # ---- the body ----

    def _compute(self) -> tirx.Stmt:
        """What the body does with a vector."""
        for inner in walk(self.body):
            if isinstance(inner, Bind):
                learn_binding(inner, self.ctx)
        tiles = self.loads.in_front()
        self.stores.plan()
        take_road(self.stmt, self.moved, self.ctx)
        body = [stmt for stmt in self.body if stmt not in (self.names or ()) or self._counts(stmt)]
        parts: list[tirx.Stmt] = []
        with self.ctx.hoist_scope(self.fixed):
            name = self._shift()
            for element in range(self.width):
                with self.ctx.scope(), self.at(element):
                    parts += [part for stmt in body if (part := self.stores.made(stmt, element)) is not None]
            return sequence([*name, *tiles, *self.stores.waiting(), *parts, *self.stores.flush()])

    def _counts(self, name: Stmt) -> bool:
        """Whether a name is that of the column, for which more than places of vectors ask."""
        if self.names is None or name is not self.names.column:
            return False
        kept = self.stores.kept
        others = (stmt for stmt in self.body if stmt not in self.names)
        values = (
            value
            for stmt in others
            for value in ([kept[stmt].store.value] if stmt in kept else expressions(stmt))
        )
        return any(uses(self._without_reads(value), (self.names.column.var,)) for value in values)

    def _without_reads(self, value: Expr) -> Expr:
        """An expression without what is in registers."""

        def read(node: Expr) -> Expr | None:
            held = any(same(node, each.load) for each in self.reads)
            return tirx.Var("held", dtype_of(node)) if held else None

        return transform(value, read)

    @contextmanager
    def at(self, element: int) -> Iterator[None]:
        """As in other loops; what phases have read is in registers."""
        number = self._number(element)
        done = [(read.load, tirx.BufferLoad(read.tmp, [number])) for read in self.reads]
        with super().at(element), self.ctx.hoist_scope(done):
            yield


class RaggedLoads(VectorLoads):
    """The reads of a loop: those of neighbours in a tensor wait for all the vectors of a thread."""

    def __init__(self, loop: Ragged) -> None:
        super().__init__(loop)
        self.loop = loop

    def bring(self, load: TensorLoad, indices: tuple[Expr, ...]) -> list[tirx.Stmt]:
        """Plans the read of neighbours; a read of one element happens once, as in other loops."""
        if not any(uses(index, (self.loop.var,)) for index in indices) or load.source.scope() != "global":
            return super().bring(load, indices)
        if any(same(load, read.load) for read in self.loop.reads):
            return []
        width = widest(load.source, self.loop.width)
        tmp = self.loop.registers(load.source, "v", self.loop.count)
        above = (
            None
            if self.loop.is_aligned(load.source, load.indices)
            else self.loop.registers(load.source, "a", self.loop.count)
        )
        self.loop.reads.append(Read(load, tmp, width, above))
        self.loop.moved.append(Moved(Access(load.source, tuple(load.indices), False), width))
        return []


class RaggedStores(VectorStores):
    """The stores of a loop, element by element at the ends of rows."""

    def __init__(self, loop: Ragged) -> None:
        super().__init__(loop)
        self.loop = loop

    def width_of(self, stmt: Store | RemoteStore) -> int:
        """How many elements one access of a store moves where no row ends."""
        moves = any(uses(self.ctx.facts.inline(index), (self.loop.var,)) for index in stmt.indices)
        return widest(stmt.buffer, self.loop.width) if self.loop.is_memory(stmt.buffer) and moves else 1

    def flush(self) -> list[tirx.Stmt]:
        """Writes what waits, the elements of each vector at once or one by one."""
        parts: list[tirx.Stmt] = []
        for kept in self.kept.values():
            dtype, tmp = str(kept.store.buffer.dtype), kept.tmp
            if kept.unrounded:
                words = "uint32" if dtype in PAIRED else "uint16"
                tmp = self.loop.registers(kept.store.buffer, "p", self.loop.width // 2, words)
                parts += [tirx.AllocBuffer(tmp), *packed_pairs(kept.tmp, tmp, self.loop.width, dtype)]
            for first in range(0, self.loop.width, kept.width):
                with self.loop.standing(first):
                    parts.append(self._stored(kept, tmp, first))
        return parts

    def _stored(self, kept: Kept, tmp: Var, first: int) -> tirx.Stmt:
        """Writes the elements that wait, at once or one by one."""
        ctx, width, buffer = self.ctx, kept.width, kept.store.buffer
        spot = self.loop.spots.at(buffer, kept.store.indices, width)
        vector = store_vector(buffer, spot.place, tmp, first, width, [], ctx)
        whole = list(spot.whole)
        if not self.loop.is_aligned(buffer, kept.store.indices):
            whole.append(tirx.EQ(rest(spot.place, width), _ZERO))
        elif not whole or spot.is_even:
            return guarded(vector, whole)
        size, each = bytes_of(buffer, width)
        held = tmp.ptr_to([tirx.const(first * each // element_bytes(str(tmp.dtype)), "int32")])
        made = write_end(size, each).call(self.loop.start(buffer), spot.place, held, *self.loop.row(spot))
        ends = guarded(call(made), [*once_tests(buffer, ctx), *self.loop.begun(spot)])
        return tirx.IfThenElse(all_of(whole), vector, ends)
