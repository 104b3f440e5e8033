"""RaggedThreadLoop, with vectors at the ends of rows that are read whole and cut where that is asked for.

A row that begins ``shift`` elements behind a multiple of a vector has that many elements of the row in front
of it in its first vector. They are read with it and dropped: no thread reads elements one by one but in the
vector that the tensor itself ends in, and where columns go around the end of a tile that holds more of the
row. Tensors of another pitch than the one that columns are shifted for lie the same wherever the two differ
by whole vectors, which is asked once for all threads. Gains and biases, which columns alone tell, are put
together of the two vectors that hold each: of 16-bit elements a warp's 256 take 8 lines of the first-level
cache like that, one by one 32 (8 reads of every eighth element, 4 lines each)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Var
from tvm.tirx.analysis import undefined_vars

from tilec.backends.cuda.analysis.accesses.low_places import low_bits, low_place
from tilec.backends.cuda.analysis.accesses.vectors import WIDEST
from tilec.backends.cuda.device.ends import cut_end, read_end
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.loops.ragged import Ragged, Read
from tilec.backends.cuda.emit.loops.spots import Spot, Spots, bytes_of
from tilec.backends.cuda.emit.loops.thread_loop import emit_thread_loop
from tilec.backends.cuda.emit.loops.vector_moves import read_vector
from tilec.backends.cuda.emit.statements import call, emit
from tilec.backends.cuda.nodes import RaggedThreadLoop
from tilec.ir.exprs import all_of, dtype_of, each_once, linear_in, same, substitute
from tilec.lowering.emission.access import convert_index
from tilec.lowering.emission.statements import guarded

if TYPE_CHECKING:
    from tvm.ir import Expr, TensorLoad

#: Columns are never shifted by more: one less than a vector has of elements of a byte.
_MOST_SHIFT = WIDEST - 1


@emit.register(RaggedThreadLoop)
def _emit_ragged(stmt: RaggedThreadLoop, ctx: DeviceContext) -> tirx.Stmt | None:
    first = stmt.layout.digits[-1][0] if stmt.layout.digits[-1] else None
    held = first is not None and (first.space, first.stride) == ("reg", 1) and first.size % stmt.vector == 0
    if stmt.vector == 1 or not held:
        return emit_thread_loop(stmt, ctx)
    return (_Cut if stmt.cut else Ragged)(stmt, ctx).phases()


class _Touched(Spot):
    """A vector that may have elements wherever it begins in front of the end of its row."""

    def has_elements(self, shifts: bool) -> list[Expr]:
        """It begins less than its width in front of its row."""
        return [*self.rows, *self.first]


class _Spots(Spots):
    """Vectors of columns that are known not to begin in front of column 0: fewer tests tell where they
    lie."""

    def at(self, buffer: Var, indices: Sequence[Expr], width: int) -> Spot:
        """As `Spots.at`."""
        spot = super().at(buffer, indices, width)
        column = self.column(spot.last)
        if spot.is_even or column is None or self.ctx.facts.prove(column >= 0) is not True:
            return spot
        end = spot.last + tirx.const(width - 1, dtype_of(spot.last))
        whole = [*spot.rows, *self._around()[0], *self._below(end, spot.size)]
        told = {item.name: getattr(spot, item.name) for item in fields(spot)}
        return _Touched(**{**told, "first": self._below(spot.last, spot.size), "whole": whole})

    def _below(self, index: Expr, extent: Expr) -> list[Expr]:
        """The test of an index, where it is not known to hold."""
        wide = "int64" if "int64" in (dtype_of(index), dtype_of(extent)) else "int32"
        test = tirx.LT(convert_index(index, wide), convert_index(extent, wide))
        return [] if self.ctx.facts.prove(test) is True else [self.ctx.value(test)]


class _Cut(Ragged):
    """The code of a loop whose reads at multiples of their width are whole vectors at the ends of rows,
    too."""

    def __init__(self, stmt: RaggedThreadLoop, ctx: DeviceContext) -> None:
        super().__init__(stmt, ctx)
        self.spots = _Spots(self.body, self.var, ctx)

    def _plain(self) -> tuple[Expr, list[Read]] | None:
        """Where pitches differ by whole vectors, and the reads of then; others stay as they are."""
        conds: list[Expr] = []
        reads: list[Read] = []
        for read in self.reads:
            pitch = None if read.above is None else self._pitch(read.load)
            if pitch is not None:
                low = low_bits(self.ctx.value(pitch), self.width)
                conds.append(tirx.EQ(low, tirx.const(0, "int32")))
                reads.append(replace(read, above=None))
            elif read.above is not None:
                reads.append(replace(read, above=self.registers(read.buffer, "a", self.count)))
            else:
                reads.append(read)
        return (all_of(each_once(conds)), reads) if conds else None

    def _pitch(self, load: TensorLoad) -> Expr | None:
        """By how much the pitch of a read exceeds the one that columns are shifted for, where that is all
        that keeps it from whole vectors: the one in place of the other, what it is beyond them is the
        shift."""
        place = self._between(load.source, load.indices)
        if self.names is None or place is None:
            return None
        shift = self.ctx.facts.inline(self.names.shift.var)
        for own in self._dims(place):
            for other in self._dims(shift):
                if dtype_of(own) != dtype_of(other) or not linear_in(place, [own]):
                    continue
                if same(self._low(substitute(place, {own: other})), shift):
                    return own - other
        return None

    def _dims(self, expr: Expr) -> list[Var]:
        return [var for var in undefined_vars(expr) if self.ctx.facts.is_dim(var)]

    def _low(self, place: Expr) -> Expr:
        return low_place(place, self.width, self.stmt, self.ctx.facts)

    def _ask(self, read: Read, first: int) -> list[tirx.Stmt]:
        """Asks for the vectors that hold elements of the row."""
        spot = self._spot(read)
        if read.above is not None or spot.is_even:
            return super()._ask(read, first)
        found = read_vector(read.buffer, spot.place, read.tmp, self._number(first), read.width, self.ctx)
        return [guarded(found, [*self.begun(spot), self._is_held(read, spot)])]

    def _read_ends(self, read: Read, first: int) -> list[tirx.Stmt]:
        """Reads by elements the vector that the tensor ends in."""
        spot = self._spot(read)
        if read.above is not None or spot.is_even:
            return super()._read_ends(read, first)
        made = read_end(*bytes_of(read.buffer, read.width)).call(*self._end(read, spot, first))
        return [guarded(call(made), [*self.begun(spot), tirx.Not(self._is_held(read, spot))])]

    def _put_together(self, read: Read, first: int) -> list[tirx.Stmt]:
        """Cuts off what is beside the row."""
        spot = self._spot(read)
        if read.above is not None or spot.is_even or not spot.whole:
            return super()._put_together(read, first)
        made = cut_end(*bytes_of(read.buffer, read.width)).call(*self._end(read, spot, first))
        tests = [*self.begun(spot), self._is_held(read, spot), tirx.Not(all_of(spot.whole))]
        return [guarded(call(made), tests)]

    def row(self, spot: Spot) -> list[Expr]:
        """Without elements that lie a lap further on where rows are known to end in front of those."""
        index, extent, turned, lap = super().row(spot)
        column = None if self.names is None else self.spots.column(spot.last)
        if column is None:
            return [index, extent, turned, lap]
        least = convert_index(column, "int64") + tirx.const(self.stmt.extents[-1] - _MOST_SHIFT, "int64")
        ended = self.ctx.facts.prove(least >= convert_index(spot.size, "int64")) is True
        return [index, extent, tirx.const(0, "int32") if ended else turned, lap]

    def _is_held(self, read: Read, spot: Spot) -> Expr:
        """Whether the tensor has all elements of the vector. One of columns from 0 on begins at a multiple of
        its width, less than a vector in front of its row: not in front of the tensor."""
        storage = self.ctx.storage(read.buffer)
        last = storage.offset([self.ctx.value(extent) - 1 for extent in storage.shape])
        ends = spot.place + tirx.const(read.width - 1, "int64") <= last
        known = isinstance(spot, _Touched)
        return ends if known else tirx.And(ends, spot.place >= tirx.const(0, "int64"))
