"""Device code for operands that TMA cannot take: their rows do not start at multiples of 16 bytes.

Two warpgroups load. A thread fetches the two aligned vectors of 16 bytes around each of its 16 bytes of a
tile, shifts them into place and stores them where the swizzle wants them. All of its fetches for a stage are
under way before the stage is free. It has the same 16 bytes of every 32nd row, and 32 rows are a multiple of
16 bytes apart, so that all of its fetches of a stage need the same shift. What follows the end of a row is
set to zero, as TMA does it; vectors that would reach beyond the tensor are fetched element by element.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.warp_roles.emit.build import cell, i32, let, move, ptx, put, registers, u32, when
from tilec.backends.cuda.warp_roles.wgmma import GATHERED_ROWS, ROW_BYTES
from tilec.ir.exprs import int_value
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.matmul.emit.context import MatmulContext
    from tilec.backends.cuda.matmul.nodes import GatherLoad

_VECTOR, _WORD = 16, 4
_CHUNKS, _WORDS = ROW_BYTES // _VECTOR, _VECTOR // _WORD
_UNSIGNED = {1: "uint8", 2: "uint16"}


@dataclass(frozen=True)
class Fetched:
    """What a thread has fetched of one column of chunks: for each of its rows eight words, of which four from
    byte ``shift`` on are wanted (from 0 on where ``whole`` is false), and where they go in the tile, in
    bytes. ``left``: elements from the chunks' first one to the ends of their rows."""

    left: Expr
    shift: Expr
    words: list[Var]
    wholes: list[Expr]
    to: list[Expr]


def fetch(stmt: GatherLoad, ctx: MatmulContext) -> list[Fetched]:
    """Starts the fetches of one tile by all loader threads."""
    rows, columns = (int_value(extent) or 1 for extent in stmt.dst.extent[-2:])
    size = element_bytes(str(stmt.src.dtype))
    count = _VECTOR // size
    chunk = let("chunk", T.truncmod(ctx.loader, i32(_CHUNKS)))
    row = let("row", T.truncdiv(ctx.loader, i32(_CHUNKS)))
    swizzled = T.bitwise_xor(chunk, T.truncmod(row, i32(_CHUNKS)))
    corner = let("corner", row * ROW_BYTES + swizzled * _VECTOR)
    first_row, first_column = (ctx.value(index) for index in stmt.start[-2:])
    pitch = let("pitch", tirx.Cast("int64", ctx.value(stmt.src.shape[-1])))
    start = tirx.Cast("int64", row) * pitch + tirx.Cast("int64", chunk * count)
    offset = let("offset", ctx.flat_index(stmt.src, stmt.start) + start)
    beyond = let("beyond", tirx.Cast("int32", T.bitwise_and(offset, tirx.const(count - 1, "int64"))))
    aligned = let("aligned", offset - tirx.Cast("int64", beyond))
    at_row = let("at_row", first_row + row)
    at_column = let("at_column", first_column + chunk * count)
    found = []
    for slab in range(-(-columns * size // ROW_BYTES)):  # the last one may be a tile's in part
        skipped = slab * ROW_BYTES // size
        left = let("left", ctx.value(stmt.src.shape[-1]) - at_column - skipped)
        source = _Source(stmt.src, ctx, at_row, left)
        made = Fetched(left, beyond * size, [], [], [])
        for first in range(0, rows, GATHERED_ROWS):
            step = pitch * first + skipped
            words = registers(2 * _WORDS, "uint32")
            made.words.append(words)
            made.wholes.append(source.fetch(words, first, offset + step, aligned + step, beyond))
            made.to.append(corner + (slab * rows + first) * ROW_BYTES)
        found.append(made)
    return found


class _Source:
    """A thread's column of chunks of a tensor. ``at_row``: its first row; ``left``: elements from the chunk's
    first one to the end of the row."""

    def __init__(self, buffer: Var, ctx: MatmulContext, at_row: Expr, left: Expr) -> None:
        self._tensor, self._dtype = ctx.tensors[buffer], str(buffer.dtype)
        self._count = _VECTOR // element_bytes(self._dtype)
        self._at_row, self._left = at_row, left
        self._end, pitch = ctx.value(buffer.shape[-2]), ctx.value(buffer.shape[-1])
        #: Rows before this one may be fetched by vectors; the last one of the tensor has nothing behind it.
        others = tirx.Select(tirx.And(left > 0, pitch >= 2 * self._count), self._end - 1, i32(0))
        self._whole_end = let("whole_end", tirx.Select(left >= 2 * self._count, self._end, others))

    def fetch(self, words: Var, row: int, offset: Expr, aligned: Expr, beyond: Expr) -> Expr:
        """Fetches a chunk ``row`` rows below the first one; whether it came by vectors."""
        whole = let("whole", self._at_row + row < self._whole_end)
        chosen = T.If(whole)
        with chosen:
            with T.Then():
                second = tirx.Select(beyond > 0, i32(self._count), i32(0))
                move(words, self._tensor, aligned, _VECTOR)
                move(words, self._tensor, aligned + tirx.Cast("int64", second), _VECTOR, _WORDS)
            with T.Else():
                self._singly(words, offset, tirx.Select(self._at_row + row < self._end, self._left, i32(0)))
        return whole

    def _singly(self, words: Var, offset: Expr, left: Expr) -> None:
        """The first ``left`` elements of a chunk from the last one on, zeros behind them."""
        size = element_bytes(self._dtype)
        for word in range(2 * _WORDS):
            put(words, tirx.const(0, "uint32"), word)
        bits = tirx.const(size * 8, "uint32")
        down = tirx.const(32 - size * 8, "uint32")
        with T.serial(i32(0), T.min(left, i32(self._count)), annotations={"disable_unroll": True}) as step:
            at = T.min(left, i32(self._count)) - 1 - step
            element = registers(1, _UNSIGNED[size])
            move(element, self._tensor, offset + tirx.Cast("int64", at), size)
            for word in range(_WORDS - 1, 0, -1):
                carried = T.shift_right(words[word - 1], down)
                put(words, T.bitwise_or(T.shift_left(words[word], bits), carried), word)
            put(words, T.bitwise_or(T.shift_left(words[0], bits), tirx.Cast("uint32", element[0])))


def place(stmt: GatherLoad, fetched: list[Fetched], ctx: MatmulContext) -> None:
    """Shifts what was fetched and stores it in the stage, which is free by now."""
    tile = stmt.dst.buffer
    stage = ctx.value(stmt.dst.start[0])
    base = let("tile", ctx.version(tile, stage))
    for made in fetched:
        for words, whole in zip(made.words, made.wholes, strict=True):
            _shift(words, cell(tirx.Select(whole, made.shift, i32(0)))[0])
        _clear_behind(made, element_bytes(str(stmt.src.dtype)))
        for words, to in zip(made.words, made.to, strict=True):
            ptx("st.shared.v4.b32", base + u32(to), *[words[i] for i in range(_WORDS)])


def _shift(words: Var, shift: Expr) -> None:
    """The four words from byte ``shift`` on to the front."""
    _skip_words(words, shift)
    bits = cell(T.bitwise_and(shift, i32(_WORD - 1)) * 8)[0]
    for i in range(_WORDS):
        put(words, _funnel(words, i, bits), i)


def _clear_behind(made: Fetched, size: int) -> None:
    """Zeros behind the ends of rows."""
    with when(made.left < _VECTOR // size):
        for i in range(_WORDS):
            kept = T.min(T.max(made.left * size - i * _WORD, i32(0)), i32(_WORD))
            one = tirx.const(1, "uint64")
            mask = cell(tirx.Cast("int32", T.shift_left(one, tirx.Cast("uint64", kept * 8)) - one))[0]
            for words in made.words:
                put(words, T.bitwise_and(words[i], tirx.Cast("uint32", mask)), i)


def _skip_words(words: Var, shift: Expr) -> None:
    """Moves the word that holds byte ``shift`` to the front, by selections. Through registers: TVM would
    write what stands behind a name into every use of it."""
    for step in (2, 1):
        skips = cell(T.bitwise_and(shift, i32(step * _WORD)))[0]
        for i in range(_WORDS + step):
            put(words, tirx.Select(tirx.NE(skips, i32(0)), words[i + step], words[i]), i)


def _funnel(words: Var, first: int, bits: Expr) -> Expr:
    """The low word of two, shifted right."""
    upper = T.shift_left(tirx.Cast("uint64", words[first + 1]), tirx.const(32, "uint64"))
    both = T.bitwise_or(upper, tirx.Cast("uint64", words[first]))
    return tirx.Cast("uint32", T.shift_right(both, tirx.Cast("uint64", bits)))
