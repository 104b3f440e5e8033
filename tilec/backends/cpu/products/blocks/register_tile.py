"""One register block of a product: its accumulators and the K loop that feeds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from tvm import tirx

from tilec.backends.cpu.nodes import MicroGemm, RegisterBlock, element
from tilec.backends.cpu.products.forms.dot_forms import DotForm, dot
from tilec.backends.cpu.products.forms.word_forms import group_of, word_form
from tilec.backends.cpu.products.tir import (
    CACHE_LINE,
    FIRST,
    INDEX,
    PAGE,
    SECOND,
    get,
    index,
    kept_loop,
    loop,
    prefetch,
    put,
    sequence,
    trips_of,
    unrolled,
)
from tilec.ir.exprs import dtype_of, int_value
from tilec.lowering.analysis.regions import static
from tilec.lowering.emission.storage import convert, element_bytes
from tilec.lowering.math.vectors import literal, spread, with_lanes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


#: Vectors of sums that keep multipliers busy: a multiply-add takes four cycles, and up to two start in each,
#: on Zen 4 and 5 and on Intel's cores from Skylake on (https://uops.info, VFMADD231PS).
_UNDER_WAY = 8

#: Bytes that are read between asking for memory in the second cache and reading it, where a product has as
#: little to do as with one row: docs/performance/cpu-products.md.
AHEAD = 64 << 10

#: Bytes of a tensor that caches may keep from one call to the next.
_LARGE = 4 << 20

#: K steps after which sums that take turns are added up.
_TURNING = 64

#: K steps from a prefetch out of the second cache to the products that it is for.
_NEAR = 4

_Steps = Callable[..., tirx.Stmt]


class Memory(Protocol):
    """How a microkernel reaches the buffers of the tile IR. Indices are scalar TIR expressions in range."""

    def load(self, buffer: Var, indices: tuple[Expr, ...], lanes: int = 1) -> Expr:
        """The values of ``lanes`` consecutive elements along the last index."""

    def at_once(self, buffer: Var) -> int:
        """How many elements `load` brings to their type together, faster than vector by vector; 1: none."""

    def has_first(self, buffer: Var) -> bool:
        """Whether `first` takes elements of ``buffer``."""

    def first(self, buffer: Var, indices: tuple[Expr, ...], lanes: int, count: Expr) -> Expr:
        """As `load`, but of ``count`` elements, and zeros behind them."""

    def word(self, buffer: Var, indices: tuple[Expr, ...], dtype: str) -> Expr:
        """The bits in memory that start at an element, as the type of one or several words."""

    def address(self, buffer: Var, indices: tuple[Expr, ...]) -> Expr:
        """Where an element lies."""

    def pitch(self, buffer: Var, axis: int) -> Expr:
        """Bytes from an element to the next along an axis."""

    def count(self, buffer: Var, axis: int) -> Expr:
        """Elements along an axis."""

    def store(self, buffer: Var, indices: tuple[Expr, ...], value: Expr) -> tirx.Stmt:
        """Writes the lanes of ``value`` along the last index."""


@dataclass(frozen=True, eq=False)
class Joined:
    """A product among several that each register block goes through. ``sums`` has what an earlier one hands
    on of the block at hand; None: that is in memory."""

    sums: Var | None


#: A function that does nothing. Compilers take it that it may change memory, and write it once for each call.
APART = """
define linkonce_odr hidden void @tilec_apart() alwaysinline nounwind {
  call void asm sideeffect "", "~{memory}"() noduplicate
  ret void
}
"""


def _apart() -> tirx.Stmt:
    """What keeps a trip of a K loop apart from others, of other products too (`APART`): LLVM would keep on
    the stack what several of them read, and write trips out, more code than processors keep decoded."""
    return tirx.Evaluate(tirx.call_extern("void", "tilec_apart"))


class RegisterTile:
    """The block of ``gemm`` whose first element is (``row``, ``col``); ``data`` holds it row by row.

    ``offset`` holds what the form's offset of ``b`` adds to each row, which is taken off at the start.
    ``joined``: what it knows as one of several products that each block goes through.
    ``rest`` is how many of its columns ``b`` has, at least half of them or one; None: all.
    In a block of few vectors multiply-adds would wait for each other: it has several sums of each vector,
    which take the steps of a trip in turns. They are added to the block's own every `_TURNING` steps,
    wherever a step of K ends, so that tiles whose steps are multiples of that give the same bits. The
    products of ``beside``, a narrower tile of the same rows, follow in each step: both take an element of
    ``a`` from one load."""

    def __init__(
        self,
        gemm: MicroGemm,
        memory: Memory,
        fused_multiply: bool,
        joined: Joined | None,
        block: RegisterBlock,
        row: Expr,
        col: Expr,
        offset: Var | None = None,
        rest: Expr | None = None,
        beside: RegisterTile | None = None,
    ) -> None:
        self.gemm = gemm
        self.memory = memory
        self.fused_multiply = fused_multiply
        self.joined = joined
        self.block = block
        self.row = row
        self.col = col
        self.dtype = gemm.computed
        self.form = word_form(block.form)
        self.offset = offset
        self.rest = rest
        self.beside = beside
        self.turns = turns_of(block)
        size = (1 + len(self._turning())) * block.rows * block.cols
        self.data = tirx.decl_buffer((size,), self.dtype, "acc", scope="local")

    def start(self) -> tirx.Stmt:
        """Zero, or what ``c`` holds."""
        zero = literal(0, self.dtype, self.block.lanes)
        cleared = each_vector(self.block, lambda r, v: self._begin(r, v, zero))
        if int_value(self.gemm.clear) == 1:
            return cleared
        loaded = each_vector(self.block, self._loaded)
        return (
            loaded if int_value(self.gemm.clear) == 0 else tirx.IfThenElse(self.gemm.clear, cleared, loaded)
        )

    def _loaded(self, r: Expr, v: Expr) -> tirx.Stmt:
        lanes = self.block.lanes
        if self.joined is not None and self.joined.sums is not None:
            return self._begin(r, v, get(self.joined.sums, lane(self.block, r, v), lanes))
        return self._begin(r, v, self._read(self.gemm.c.buffer, self._c(r, v), lanes))

    def _read(self, buffer: Var, place: tuple[Expr, ...], count: int) -> Expr:
        """Elements in the type of the sums; float16 that stays so passes through no other."""
        if self.block.halves and str(buffer.dtype) == self.dtype:
            return self.memory.word(buffer, place, with_lanes(self.dtype, count))
        return convert(self.memory.load(buffer, place, count), self.dtype)

    def _begin(self, r: Expr, v: Expr, value: Expr) -> tirx.Stmt:
        if self.offset is not None:
            value = value - spread(get(self.offset, self.row + r, 1), self.block.lanes)
        return put(self.data, lane(self.block, r, v), value)

    def write_back(self) -> tirx.Stmt:
        """Stores the block to ``c``."""

        def stored(r: Expr, v: Expr) -> tirx.Stmt:
            value = get(self.data, lane(self.block, r, v), self.block.lanes)
            return self.memory.store(self.gemm.c.buffer, self._c(r, v), value)

        return each_vector(self.block, stored)

    def multiply(self) -> tirx.Stmt:
        """The K loop: ``unroll`` steps a trip, then the rest one by one. One row, which would ask as often as
        it multiplies, asks for large tensors alone."""
        asks = self._runs_ahead()
        if not asks or self.block.rows > 1:
            return self._whole_depth(asks=asks)
        return tirx.IfThenElse(self._is_large(), self._whole_depth(asks=True), self._whole_depth(asks=False))

    def _whole_depth(self, *, asks: bool) -> tirx.Stmt:
        steps = partial(self._steps, asks=asks)
        depth = int_value(self.gemm.depth)
        if self.turns > 1 and (depth is None or depth > _TURNING):
            return self._depth_in_turns(steps)
        whole = self._dynamic_depth if depth is None else self._static_depth
        return self._in_turns(*whole(steps))

    def _depth_in_turns(self, some: _Steps) -> tirx.Stmt:
        """All steps, `_TURNING` of them behind each other."""
        limit, unroll = tirx.Var("depth", INDEX), self.block.unroll

        def part(number: Expr) -> tirx.Stmt:
            first, count = number * _TURNING, tirx.Var("steps", INDEX)
            whole = tirx.truncdiv(count, index(unroll))
            return sequence(
                tirx.Bind(count, tirx.min(limit - first, index(_TURNING))),
                self._in_turns(
                    kept_loop(whole, lambda k: some(first + k * unroll, unroll)),
                    kept_loop(count - whole * unroll, lambda k: some(first + whole * unroll + k, 1)),
                ),
            )

        parts = tirx.truncdiv(limit + (_TURNING - 1), index(_TURNING))
        return sequence(tirx.Bind(limit, trips_of(self.gemm.depth)), loop(parts, part))

    def _in_turns(self, *steps: tirx.Stmt) -> tirx.Stmt:
        """Steps between the start of the sums that take turns and their end."""
        tiles = [self] if self.beside is None else [self, self.beside]
        cleared = [tile._cleared(number) for tile in tiles for number in tile._turning()]
        return sequence(*cleared, *steps, *(tile._ended() for tile in tiles if tile.turns > 1))

    def _turning(self) -> range:
        """Numbers of the sums that take turns; 0 is the block's own, which takes all steps without them."""
        return range(1, self.turns + 1) if self.turns > 1 else range(0)

    def _cleared(self, number: int) -> tirx.Stmt:
        zero = literal(0, self.dtype, self.block.lanes)
        return each_vector(self.block, lambda r, v: put(self.data, self._sum(number, r, v), zero))

    def _ended(self) -> tirx.Stmt:
        """Sums that took turns, by pairs, added to the block's own: these wait for no others meanwhile."""

        def total(r: Expr, v: Expr) -> tirx.Stmt:
            sums = [get(self.data, self._sum(n, r, v), self.block.lanes) for n in self._turning()]
            while len(sums) > 1:
                sums = [first + second for first, second in zip(sums[::2], sums[1::2], strict=True)]
            at = lane(self.block, r, v)
            return put(self.data, at, get(self.data, at, self.block.lanes) + sums[0])

        return each_vector(self.block, total)

    def _sum(self, number: Expr | int, r: Expr, v: Expr) -> Expr:
        """First element of one of the sums of vector ``v`` of row ``r``."""
        return number * self.block.rows * self.block.cols + lane(self.block, r, v)

    @property
    def unroll(self) -> int:
        """K steps of a trip; one, without a loop for the rest of K, for last rows and columns whose sums take
        no turns: their multiply-adds wait for each other longer than a trip takes to count."""
        block, whole = self.block, self.gemm.block
        is_whole = block.rows == whole.rows and block.cols == whole.cols
        if is_whole or self.turns > 1 or block.ahead > 1 or self._runs_ahead():
            return block.unroll
        return 1

    def _static_depth(self, some: _Steps) -> list[tirx.Stmt]:
        unroll = self.unroll
        steps = -(-static(self.gemm.depth) // group_of(self.block.form))
        trips, rest = divmod(steps, unroll)
        parts = [kept_loop(trips, lambda k: some(k * unroll, unroll))] if trips else []
        return [*parts, *([some(index(trips * unroll), rest)] if rest else [])]

    def _dynamic_depth(self, some: _Steps) -> list[tirx.Stmt]:
        unroll, limit = self.unroll, tirx.Var("depth", INDEX)
        trips = tirx.truncdiv(limit, index(unroll))
        group = group_of(self.block.form)
        parts = [
            tirx.Bind(limit, tirx.truncdiv(trips_of(self.gemm.depth) + (group - 1), index(group))),
            kept_loop(trips, lambda k: some(k * unroll, unroll)),
        ]
        if unroll == 1:
            return parts
        return [*parts, kept_loop(limit - trips * unroll, lambda k: some(trips * unroll + k, 1))]

    def _steps(self, k: Expr, count: int, *, asks: bool) -> tirx.Stmt:
        """``count`` consecutive K steps from ``k``. What they ask for comes first: compilers keep loads and
        prefetches in order, and one between two steps would keep elements of all of them in registers."""
        ahead = self.block.ahead
        if ahead == 1 or count % ahead or not self.gemm.a.side_by_side:
            steps = unrolled(count, lambda u: self._step(k + u, u))
        else:
            steps = sequence(*(self._by_lane(k, u // ahead * ahead, u % ahead) for u in range(count)))
        begun = [] if self.joined is None else [_apart()]
        return sequence(*begun, *(self._asked(k, count) if asks else ()), steps)

    def _step(self, k: Expr, number: Expr) -> tirx.Stmt:
        """One step, of this number in its trip, of this tile and the one beside it."""
        own = self._products(k, lambda r: self._a(r, k, 1), number)
        return own if self.beside is None else sequence(own, self.beside._step(k, number))

    def _by_lane(self, k: Expr, first: int, number: int) -> tirx.Stmt:
        """Step ``number`` of those whose elements of ``a`` are read together at ``first`` from ``k`` on."""
        read = partial(self._a, k=k + first, count=self.block.ahead)
        step = first + number
        return self._products(k + step, lambda r: tirx.Shuffle([read(r)], [index(number)]), index(step))

    def _products(self, k: Expr, a: Callable[[Expr], Expr], step: Expr) -> tirx.Stmt:
        """One step, of this number in its trip: every vector of every row += a(row) * b[k, vector]."""
        turn = tirx.truncmod(step, index(self.turns)) + 1 if self.turns > 1 else index(0)
        held, filled = self._row_at_once(k)

        def multiplied(r: Expr, v: Expr) -> tirx.Stmt:
            at = self._sum(turn, r, v)
            old = get(self.data, at, self.block.lanes)
            left = spread(a(r), self.block.lanes)
            lanes = self.block.lanes
            right = self._b(k, v) if held is None else get(held, v * lanes, lanes)
            return put(self.data, at, self._multiply_add(left, right, old))

        return sequence(*filled, each_vector(self.block, multiplied))

    def _row_at_once(self, k: Expr) -> tuple[Var | None, list[tirx.Stmt]]:
        """The row of ``b`` at ``k`` in registers, and what brings it there, where several vectors of it are
        converted together; else nothing."""
        together, cols = self.memory.at_once(self.gemm.b.region.buffer), self.block.cols
        if together == 1 or cols % together or self.rest is not None or self.form is not None:
            return None, []
        held = tirx.decl_buffer((cols,), self.dtype, "row", scope="local")

        def filled(at: int) -> tirx.Stmt:
            place = element(self.gemm.b, k, self.col + at)
            return put(held, index(at), self._read(self.gemm.b.region.buffer, place, together))

        return held, [tirx.AllocBuffer(held), *map(filled, range(0, cols, together))]

    def _runs_ahead(self) -> bool:
        """Whether columns of ``b`` are asked for while others are multiplied: where it is read where it lies,
        row by row in short pieces, which no prefetcher of a CPU follows."""
        whole = self.rest is None and self.block.cols == self.gemm.block.cols
        return whole and self.gemm.asks_ahead and (self.block.rows > 1 or self._has_long_rows())

    def _asked(self, k: Expr, count: int) -> list[tirx.Stmt]:
        """Asks for the rows of ``b`` of ``count`` steps in the next block of columns. Several blocks of rows
        share in that, each of them by half of a trip: a core has room for so many lines under way, and the
        first block would wait for all of them. They come to the second cache, and from there, a few steps
        ahead of their products, to the first. One row asks for what it reads some tiles of K later."""
        if self.block.rows == 1:
            return [self._row_of_b(k + (self._later() + u), 0, SECOND) for u in range(count)]
        if static(self.gemm.a.region.extent[self.gemm.a.row]) <= self.gemm.block.rows:
            return [self._row_of_b(k + u, self.block.cols) for u in range(count)]
        nearer = [self._row_of_b(k + (_NEAR + u), 0) for u in range(count)]
        half = count // 2
        turn = tirx.truncmod(tirx.truncdiv(self.row, index(self.gemm.block.rows)), index(2))
        return [self._row_of_b(k + turn * half + u, self.block.cols, SECOND) for u in range(half)] + nearer

    def _is_large(self) -> Expr:
        """Whether ``b`` is more than caches keep of it from one call to the next."""
        b = self.gemm.b.region.buffer
        count, pitch = self.memory.count(b, 0), self.memory.pitch(b, 0)
        return tirx.Cast("int64", count) * tirx.Cast("int64", pitch) > tirx.const(_LARGE, "int64")

    def _has_long_rows(self) -> bool:
        """Whether one row alone meets rows of ``b`` in pieces of a page or more: shorter ones would have as
        many pages under way as rows."""
        return self.gemm.block.rows == 1 and self._bytes_of_row() >= PAGE

    def _bytes_of_row(self) -> int:
        """Those that a tile has of a row of ``b``."""
        b = self.gemm.b.region
        return static(b.extent[self.gemm.b.col]) * element_bytes(str(b.buffer.dtype))

    def _later(self) -> int:
        """Rows of ``b`` from those at hand to the first that are read `AHEAD` bytes later, whole tiles."""
        rows = static(self.gemm.b.region.extent[self.gemm.b.row])
        return rows * -(-AHEAD // (rows * self._bytes_of_row()))

    def _row_of_b(self, k: Expr, behind: int, near: int = FIRST) -> tirx.Stmt:
        """Asks for row ``k`` of ``b`` in the block of columns ``behind`` the own, by the ends of its lines:
        where rows begin inside of one, the block before has asked for the first."""
        b, line = self.gemm.b, CACHE_LINE // element_bytes(str(self.gemm.b.region.buffer.dtype))

        def asked(number: Expr) -> tirx.Stmt:
            place = element(b, k, self.col + (behind + number * line + (line - 1)))
            return prefetch(self.memory.address(b.region.buffer, place), near=near)

        return unrolled(-(-self.block.cols // line), asked)

    def _a(self, r: Expr, k: Expr, count: int) -> Expr:
        """``count`` elements or words of a row of ``a``."""
        if self.form is not None:
            return self._words(r, k, count, self.form)
        place = element(self.gemm.a, self.row + r, k)
        return self._read(self.gemm.a.region.buffer, place, count)

    def _words(self, r: Expr, k: Expr, count: int, form: DotForm) -> Expr:
        """Words from ``k`` on of a row of ``a``."""
        place = element(self.gemm.a, self.row + r, k * form.group)
        return self.memory.word(self.gemm.a.region.buffer, place, with_lanes(form.word, count))

    def _b(self, k: Expr, v: Expr) -> Expr:
        place = element(self.gemm.b, k, self.col + v * self.block.lanes)
        if self.rest is None or self.form is not None:
            return self._all_of_b(place)
        buffer, lanes = self.gemm.b.region.buffer, self.block.lanes
        part = convert(self.memory.first(buffer, place, lanes, self.rest - v * lanes), self.dtype)
        if self.block.vectors == 1:
            return part
        return tirx.if_then_else(v < self.block.vectors // 2, self._all_of_b(place), part)

    def _all_of_b(self, place: tuple[Expr, ...]) -> Expr:
        """The vector of ``b`` at a place."""
        buffer, lanes = self.gemm.b.region.buffer, self.block.lanes
        return (
            self._read(buffer, place, lanes) if self.form is None else self.memory.load(buffer, place, lanes)
        )

    def _multiply_add(self, a: Expr, b: Expr, old: Expr) -> Expr:
        if self.form is not None:
            return dot(self.form, a, b, old, self.block.lanes)
        if self.fused_multiply and self.dtype.startswith("float"):
            return tirx.call_intrin(dtype_of(old), "tirx.fma", a, b, old)
        return old + a * b

    def _c(self, r: Expr, v: Expr) -> tuple[Expr, ...]:
        """Where vector ``v`` of row ``r`` lies in ``c``."""
        *leading, row, col = self.gemm.c.start
        return (*leading, row + (self.row + r), col + (self.col + v * self.block.lanes))


def turns_of(block: RegisterBlock) -> int:
    """How many sums each vector of a block of multiply-adds has: as many as keep multipliers busy, where the
    steps of a trip are enough for them."""
    if block.form != "fma":
        return 1
    wanted = max(1, _UNDER_WAY // (block.rows * (block.vectors + block.beside)))
    return min(1 << (wanted.bit_length() - 1), block.unroll)


def lane(block: RegisterBlock, r: Expr, v: Expr) -> Expr:
    """First element of vector ``v`` of row ``r`` in the registers of a block."""
    return r * block.cols + v * block.lanes


def each_vector(block: RegisterBlock, body: Callable[[Expr, Expr], tirx.Stmt]) -> tirx.Stmt:
    """``body(row, vector)`` for every vector of a block, unrolled."""
    if block.ahead > 1:
        return unrolled(block.vectors, lambda v: unrolled(block.rows, lambda r: body(r, v)))
    return unrolled(block.rows, lambda r: unrolled(block.vectors, lambda v: body(r, v)))
