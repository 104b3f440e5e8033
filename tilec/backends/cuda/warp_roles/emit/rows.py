"""Device code of rows that leave a staging buffer by the threads of a warpgroup, where TMA cannot address the
tensor: its rows begin anywhere.

Rows that do begin at multiples of 16 bytes leave in vectors of so many. Of others a warp stores single
elements, neighbours of which neighbouring lanes have, a row (or several) of the buffer at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.analysis.accesses.vectors import divides
from tilec.backends.cuda.analysis.products.wgmma import ROWS
from tilec.backends.cuda.warp_roles.emit.build import i32, let, ptx, registers, u32, when
from tilec.backends.cuda.warp_roles.emit.load_ahead import first_column
from tilec.backends.cuda.warp_roles.tma import element_strides, has_aligned_rows
from tilec.ir.exprs import all_of, int_value, substitute
from tilec.ir.nodes import Store

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.warp_roles.emit.context import TileContext
    from tilec.backends.cuda.warp_roles.emit.load_ahead import Lane
    from tilec.backends.cuda.warp_roles.nodes import TileStore

_WARPS, _LANES = 4, 32
#: Elements of 16 bits in a vector of 16 bytes; bytes between which swizzles swap places.
_VECTOR, _SPAN = 8, 128
#: Elements of a line that a lane stores one by one.
_PARTS = 2
#: Lines that are read before the first of them is stored.
_AHEAD = 4
_ROLLED = {"disable_unroll": True}


@dataclass(frozen=True, eq=False)
class Ends:
    """Rows of a tile leave up to the last one for which ``condition`` holds; ``whole``: whether all do."""

    condition: Expr
    whole: Expr


def send_rows(
    stmt: TileStore, ctx: TileContext, lane: Lane, buffer: Expr, chunk: int, ends: Ends | None
) -> None:
    """The rows of a chunk of columns, by all threads of the warpgroup."""
    rows = _Rows(stmt, ctx, lane, buffer, chunk, ends)
    always = rows.are_always_aligned()
    for block in range(stmt.rows // ROWS if stmt.turned else 1):
        if always:
            rows.send_vectors(block)
            continue
        with T.If(rows.are_aligned()):
            with T.Then():
                rows.send_vectors(block)
            with T.Else():
                rows.send_elements(block)


class _Rows:
    """Lines of a staging buffer, each a part of a row of the tensor. Those of a warpgroup are in one block,
    or, ``turned``, in one for each 64 rows of the accumulator."""

    def __init__(
        self, stmt: TileStore, ctx: TileContext, lane: Lane, buffer: Expr, chunk: int, ends: Ends | None
    ) -> None:
        last = stmt.body[-1]
        assert isinstance(last, Store)
        self._stmt, self._ctx, self._lane, self._store = stmt, ctx, lane, last
        self._chunk, self._buffer, self._ends = chunk, buffer, ends
        self._lines, self._width = (stmt.columns, ROWS) if stmt.turned else (stmt.rows, stmt.columns)

    def are_always_aligned(self) -> bool:
        """Whether `are_aligned` is known to hold for all calls."""
        stmt, facts, tensor = self._stmt, self._ctx.facts, self._store.buffer
        start = substitute(self._store.indices[-1], dict.fromkeys(stmt.vars, i32(0)))
        whole = all(divides(_VECTOR, each, facts) for each in (start, tensor.shape[-1]))
        return whole and stmt.parts == 1 and has_aligned_rows(tensor, facts)

    def are_aligned(self) -> Expr:
        """Whether all lines begin at multiples of 16 bytes, and rows end at such."""
        ctx, tensor = self._ctx, self._store.buffer
        with self._element(0, i32(0), i32(0)):
            tests = [_is_whole(ctx.flat_index(tensor, self._store.indices))]
        steps = [step for step in element_strides(tensor)[:-1] if not isinstance(step, int)]
        tests += [_is_whole(ctx.value(each)) for each in (*steps, tensor.shape[-1])]
        return let("aligned", all_of(tests))

    def send_vectors(self, block: int) -> None:
        """Vectors of 16 bytes."""
        with self._lines_of(block, _VECTOR) as (lines, number):
            first = let("first", number * _VECTOR)
            held = registers(4 * len(lines), "uint32")
            words = [[held[4 * number + word] for word in range(4)] for number in range(len(lines))]
            for line, four in zip(lines, words, strict=True):
                ptx("ld.shared.v4.b32", *four, self._address(block, line, first))
            for line, four in zip(lines, words, strict=True):
                with self._inside(block, line, first):
                    ptx("st.global.v4.b32", self._global(), *four)

    def send_elements(self, block: int) -> None:
        """Single elements, to each lane the next one of its neighbour's. Pairs that begin at multiples of 4
        bytes take longer to shift and to test than they save (H100, 4095 x 4095 x 512 in tiles of 128 x 128:
        75.2 us, 56.1 so)."""
        with self._lines_of(block, _PARTS) as (lines, column):
            places = [
                (line, column + part * (self._width // _PARTS)) for line in lines for part in range(_PARTS)
            ]
            held = registers(len(places), "uint16")
            for number, place in enumerate(places):
                ptx("ld.shared.b16", held[number], self._address(block, *place))
            starts = [self._start(block, line) for line in lines]
            for number, place in enumerate(places):
                with self._inside(block, *place):
                    ptx("st.global.b16", self._at(starts[number // _PARTS], place[1]), held[number])

    @contextmanager
    def _lines_of(self, block: int, size: int) -> Iterator[tuple[list[Expr], Expr]]:
        """A loop over the lines of this warp, some in each turn, for as long as they are in the tensor: the
        lines, and the number of a lane among those that have ``size`` elements each of a line. Lanes take one
        line together, or several where that is short."""
        lanes = self._width // size
        together = _WARPS * (_LANES // lanes)
        count = min(_AHEAD, self._lines // together)
        own = let("own_line", self._lane.warp * (_LANES // lanes) + self._lane.lane // lanes)
        number = let("number", T.truncmod(self._lane.lane, i32(lanes)))
        with T.serial(i32(0), i32(self._lines // (together * count)), annotations=_ROLLED) as turn:
            line = let("line", turn * (together * count) + own)
            with when(self._test(block, line, i32(0))):
                yield [line + ahead * together for ahead in range(count)], number

    def _address(self, block: int, line: Expr, element: Expr) -> Expr:
        """Where an element of a line lies in the staging buffer, whose pieces of 16 bytes are swizzled."""
        pitch, pieces = self._width * 2, self._width // _VECTOR
        swap = T.truncmod(T.truncdiv(line * pitch, i32(_SPAN)), i32(pieces))
        piece = T.bitwise_xor(T.truncdiv(element, i32(_VECTOR)), swap)
        place = line * pitch + piece * 16 + T.truncmod(element, i32(_VECTOR)) * 2
        return self._buffer + u32(block * self._lines * pitch) + u32(place)

    @contextmanager
    def _element(self, block: int, line: Expr, element: Expr) -> Iterator[None]:
        """The loop variables are those of an element of a line."""
        stmt, ctx = self._stmt, self._ctx
        row, column = (element + block * ROWS, line) if stmt.turned else (line, element)
        start = i32(stmt.chunks[self._chunk]) + first_column(stmt, ctx)
        with ctx.scope({stmt.vars[0]: ctx.share * stmt.rows + row, stmt.vars[1]: start + column}):
            yield

    def _global(self) -> Expr:
        ctx, last = self._ctx, self._store
        return T.address_of(ctx.tensors[last.buffer][ctx.flat_index(last.buffer, last.indices)])

    def _start(self, block: int, line: Expr) -> Expr:
        """Where a line begins in the tensor."""
        with self._element(block, line, i32(0)):
            place = self._ctx.flat_index(self._store.buffer, self._store.indices)
        return let("start", tirx.Cast("int64", place))

    def _at(self, start: Expr, element: Expr) -> Expr:
        """The address of an element of a line that begins at ``start``."""
        tensor = self._ctx.tensors[self._store.buffer]
        return T.address_of(tensor[start + tirx.Cast("int64", element)])

    def _test(self, block: int, line: Expr, element: Expr) -> Expr:
        with self._element(block, line, element):
            return self._leaves()

    def _leaves(self) -> Expr:
        """Whether the element that the variables name is stored: it lies in the tensor, and its row is none
        behind the last one."""
        inside = self._ctx.inside(self._store.buffer, self._store.indices)
        tests = [] if inside is None else [inside]
        if self._ends is not None:
            tests.append(self._ctx.value(self._ends.condition))
        return all_of(tests) if tests else tirx.const(True, "bool")

    @contextmanager
    def _inside(self, block: int, line: Expr, element: Expr) -> Iterator[None]:
        """Within it an element's variables stand, and it is stored."""
        with self._element(block, line, element), when(self._leaves()):
            yield


def _is_whole(place: Expr) -> Expr:
    """Whether a number of elements is one of whole vectors."""
    known = int_value(place)
    if known is not None:
        return tirx.const(known % _VECTOR == 0, "bool")
    wide = tirx.Cast("int64", place)
    return tirx.EQ(T.truncmod(wide, tirx.const(_VECTOR, "int64")), tirx.const(0, "int64"))
