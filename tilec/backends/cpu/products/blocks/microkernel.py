"""TIR of a `MicroGemm`: loops over panels and row blocks around a K loop whose accumulators are registers.

Columns go outermost, so that one panel of ``b`` stays in the first cache levels while the rows of ``a`` pass;
by bands rows do, and panels pass (`bands`).
Rows and columns that fill no whole block are done by narrower blocks of the next powers of two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

from tvm import tirx

from tilec.backends.cpu.nodes import MicroGemm, RegisterBlock
from tilec.backends.cpu.products.blocks.across_tile import AcrossTile
from tilec.backends.cpu.products.blocks.bands import Bands
from tilec.backends.cpu.products.blocks.depths import Depths
from tilec.backends.cpu.products.blocks.matrix_tile import MatrixTile
from tilec.backends.cpu.products.blocks.register_tile import Joined, Memory, RegisterTile
from tilec.backends.cpu.products.blocks.row_offsets import RowOffsets
from tilec.backends.cpu.products.forms.matrix_forms import MATRIX_FORMS
from tilec.backends.cpu.products.forms.word_forms import word_form
from tilec.backends.cpu.products.tir import index, loop, sequence, trips_of
from tilec.ir.exprs import cast_to, dtype_of, int_value
from tilec.lowering.analysis.regions import static
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


#: Bytes of the widest vectors.
_WIDEST = 64
#: Vectors of a row of a tile up to which the last one counts for much.
_FEW_VECTORS = 16

#: What is done for a block of rows or columns, from its first one on.
_Part: TypeAlias = Callable[["RegisterBlock", "Expr"], tirx.Stmt]


class Epilogue(Protocol):
    """What follows a product, one register block after the other; ``row`` and ``col`` are its first."""

    def ahead(self, row: Expr, col: Expr, block: RegisterBlock) -> tirx.Stmt | None:
        """Asks for the memory that `emit` will touch; None where there is none to ask for."""

    def emit(
        self, row: Expr, col: Expr, block: RegisterBlock, accumulators: Var, whole: bool
    ) -> tirx.Stmt | None:
        """The work on the sums in ``accumulators``, all of whose columns count where it is ``whole``."""

    def gathered(self, block: RegisterBlock) -> Gathered | None:
        """What several blocks of last rows have done for them together; None: each has its own."""


class Gathered(Protocol):
    """The sums of blocks of last rows side by side, and what follows them."""

    def begin(self) -> list[tirx.Stmt]:
        """Room for them."""

    def put(self, block: RegisterBlock, accumulators: Var, behind: Expr) -> tirx.Stmt | None:
        """Takes those of a block ``behind`` so many rows; None where these are in memory."""

    def emit(self, row: Expr, col: Expr, rows: Expr, whole: bool) -> tirx.Stmt:
        """The work on ``rows`` rows, whose first one is ``row``, as `Epilogue.emit` does it."""


class HandedOn(Protocol):
    """Sums that products hand on to each other, one register block after the other."""

    def begin(self, block: RegisterBlock) -> list[tirx.Stmt]:
        """Room for those of a block."""

    def sums(self, buffer: Var) -> Var | None:
        """Where those of a tile are; None: it is not handed on."""


def emit_product(gemm: MicroGemm, memory: Memory, fused_multiply: bool, epilogue: Epilogue) -> tirx.Stmt:
    """The statement that computes ``gemm``; ``fused_multiply`` where the target has an FMA instruction."""
    return _Builder(gemm, memory, fused_multiply, epilogue).product()


def emit_joined(
    products: Sequence[tuple[MicroGemm, Epilogue]], memory: Memory, fused_multiply: bool, handed: HandedOn
) -> tirx.Stmt:
    """The statement that computes several products block by block, each with what follows it."""
    first, *others = (_Builder(gemm, memory, fused_multiply, epilogue, handed) for gemm, epilogue in products)
    first.others = others
    return first.product()


def column_blocks(gemm: MicroGemm, columns: int) -> Iterator[tuple[RegisterBlock, int, int]]:
    """Block, first column and number of blocks: whole ones, then one for every power of two in the rest."""
    block = gemm.block
    whole = columns // block.cols
    if whole:
        yield block, 0, whole
    start = whole * block.cols
    while start < columns:
        width = 1 << ((columns - start).bit_length() - 1)
        yield _narrow(block, width), start, 1
        start += width


class _Builder:
    """Emits the loops of one product, each of whose blocks those of the ``others`` follow. ``whole``: all
    columns of the blocks at hand count, or a condition that says so when the code runs; ``rest``: how many of
    them ``b`` has, where that is not all; ``narrower``: where its condition holds, blocks of all rows are
    those; ``gathered``: where sums of last rows go, and the first of these rows; ``of_band``: the product
    with the band at hand as its ``a``."""

    def __init__(
        self,
        gemm: MicroGemm,
        memory: Memory,
        fused_multiply: bool,
        epilogue: Epilogue,
        handed: HandedOn | None = None,
    ) -> None:
        self.gemm = gemm
        self.memory = memory
        self.fused_multiply = fused_multiply
        self.epilogue = epilogue
        self.handed = handed
        self.others: list[_Builder] = []
        self.bands = None if gemm.band is None else Bands(gemm, gemm.band, memory)
        self.of_band = gemm
        self.depths = None if gemm.a_reach is None else Depths(gemm, gemm.a_reach, memory)
        self.offset: Var | None = None
        self.whole: bool | Expr = True
        self.rest: Expr | None = None
        self.narrower: tuple[Expr, RegisterBlock] | None = None
        self.gathered: tuple[Gathered, Expr] | None = None

    def product(self) -> tirx.Stmt:
        """All blocks of columns, each over all rows; by bands the other way round."""
        shared = self._shared()
        if self.bands is not None:
            return sequence(*shared, self._rows(self.gemm.block, partial(self._band, self.bands)))
        return sequence(
            *shared, *self._columns(lambda block, col: self._rows(block, partial(self._block, col=col), col))
        )

    def _band(self, bands: Bands, rows: RegisterBlock, row: Expr) -> tirx.Stmt:
        """One band, which meets all columns."""
        self.of_band = bands.at(row)

        def part(block: RegisterBlock, col: Expr) -> tirx.Stmt:
            if block.form != "fma" or self._is_wide(block):
                return self._block_of_band(replace(block, rows=rows.rows), row, col)
            return self._static_rows(
                block, rows.rows, lambda some, first: self._block(some, row + first, col)
            )

        return sequence(bands.filled(row, rows.rows), *self._columns(part))

    def _block_of_band(self, block: RegisterBlock, row: Expr, col: Expr) -> tirx.Stmt:
        """The register block of a band; a band of fewer rows has no `narrower` ones."""
        if block.rows < self.gemm.block.rows:
            return self._block(block, row, col)
        return self._as_narrow(block, lambda some: self._block(some, row, col))

    def _shared(self) -> list[tirx.Stmt]:
        """What all columns have in common: how deep rows are, and what the form's offset adds to them."""
        depths = [] if self.depths is None else [self.depths.fill()]
        others = (part for other in self.others for part in other._shared())
        return [*depths, *self._offsets(), *others]

    def _offsets(self) -> list[tirx.Stmt]:
        block = self.gemm.block
        across = block.form == "across"
        form = word_form(block.along if across else block.form)
        if form is None or not form.offset:
            return []
        lanes = block.unroll // form.group if across else block.lanes
        offsets = RowOffsets(self.gemm, self.memory, form, lanes, across)
        self.offset = offsets.table
        return [offsets.fill()]

    def _columns(self, part: _Part) -> list[tirx.Stmt]:
        """``part`` for all blocks of columns, each with its first column. Instructions on words take whole
        vectors of them."""
        self.whole, self.rest = True, None
        columns, block = int_value(self.gemm.columns), self.gemm.block
        if columns is None or (word_form(block.form) is not None and columns % block.lanes):
            return self._limited_columns(part)
        return [
            _side_by_side(block, start, count, part)
            for block, start, count in column_blocks(self.gemm, columns)
        ]

    def _limited_columns(self, part: _Part) -> list[tirx.Stmt]:
        """As many blocks as the run-time number of columns takes: whole panels; or whole blocks, and then one
        that reads no more than there is or a narrower one per power of two."""
        block, limit = self.gemm.block, tirx.Var("columns", "int32")
        bind = tirx.Bind(limit, trips_of(self.gemm.columns))
        if self.gemm.b.panel is not None and self._has_room(block):
            return [bind, *self._panels(block, limit, part)]
        if self._reads_parts(block):
            return [bind, *self._parts(block, limit, part)]
        whole = tirx.truncdiv(limit, index(block.cols))
        parts = [loop(whole, lambda j: part(block, j * block.cols))]
        for width in _powers_below(block.cols):
            parts.append(_tail(width, whole * block.cols, limit, partial(part, _narrow(block, width))))
        return [bind, *parts]

    def _panels(self, block: RegisterBlock, limit: Var, part: _Part) -> list[tirx.Stmt]:
        """Panels of which more than a vector is left, whole ones and the last one; a last vector."""
        lanes, count = block.lanes, tirx.truncdiv(limit, index(block.cols))
        start = count * block.cols
        rest = limit - start
        wide = (
            count
            if block.vectors == 1
            else tirx.truncdiv(limit + (block.cols - lanes - 1), index(block.cols))
        )

        def panel(number: Expr) -> tirx.Stmt:
            left = limit - number * block.cols
            self.whole = left >= block.cols
            return self._last(block, number * block.cols, left, part)

        parts = [loop(wide, panel)]
        self.whole = False
        few = self._last(_narrow(block, lanes), start, rest, part)
        return [*parts, tirx.IfThenElse(tirx.all(rest > 0, rest <= lanes), few, None)]

    def _has_room(self, block: RegisterBlock) -> bool:
        """Whether rows of sums have room for the last vectors of a panel: the next row begins behind them."""
        columns = static(self.gemm.c.extent[-1])
        return columns % block.cols == 0 or (block.vectors <= 2 and columns % block.lanes == 0)

    def _reads_parts(self, block: RegisterBlock) -> bool:
        """Whether the last block may have fewer columns than it computes."""
        fills = static(self.gemm.c.extent[-1]) % block.cols == 0
        return (
            block.form == "fma"
            and block.lanes >= 4
            and fills
            and self.memory.has_first(self.gemm.b.region.buffer)
        )

    def _parts(self, block: RegisterBlock, limit: Var, part: _Part) -> list[tirx.Stmt]:
        """Whole blocks; behind them one of the fewest vectors, a power of two, that have all columns."""
        count = tirx.truncdiv(limit, index(block.cols))
        start = count * block.cols
        parts = [loop(count, lambda j: part(block, j * block.cols))]
        self.whole, self.rest = False, limit - start
        width, few = block.lanes, None
        while width <= block.cols:
            wider = self._last(_narrow(block, width), start, self.rest, part)
            few = wider if few is None else tirx.IfThenElse(self.rest > width // 2, wider, few)
            width *= 2
        return [*parts, tirx.IfThenElse(self.rest > 0, few, None)]

    def _last(self, block: RegisterBlock, start: Expr, rest: Expr, part: _Part) -> tirx.Stmt:
        """``part`` for a block, of whose columns ``rest`` are left; of one or two vectors half a vector less
        where that has them all. Cores that start one multiply-add of 512 bits a cycle start two of 256. Rows
        that fill no block, which wait for each other more than for multipliers, take the block as it is."""
        width = block.cols - block.lanes // 2
        if block.vectors <= 2 and self._has_halves(block):
            narrow = _narrow(block, width) if block.vectors == 1 else replace(block, cols=width)
            self.narrower = (rest <= width, narrow)
        stmt = part(block, start)
        self.narrower = None
        return stmt

    def _has_halves(self, block: RegisterBlock) -> bool:
        """Whether the last columns of a block are worth half a vector: of few vectors that is much."""
        is_widest = block.lanes * element_bytes(self.gemm.computed) == _WIDEST
        is_few = static(self.gemm.c.extent[-1]) <= _FEW_VECTORS * block.lanes
        return is_few and is_widest and block.form == "fma"

    def _rows(self, block: RegisterBlock, part: _Part, col: Expr | None = None) -> tirx.Stmt:
        """``part`` for all blocks of rows, each with its first row: whole ones, then one block of what is
        left, or one for every power of two in it. What follows these is there once where they have the
        column ``col`` in common."""
        rows = int_value(self.gemm.rows)
        if rows is not None:
            return self._static_rows(block, rows, part)
        limit, done = tirx.Var("rows", "int32"), tirx.Var("done", "int32")
        whole = tirx.truncdiv(limit, index(block.rows))
        return sequence(
            tirx.Bind(limit, trips_of(self.gemm.rows)),
            self._whole_rows(block, whole, part),
            *([] if block.rows == 1 else [tirx.Bind(done, whole * block.rows)]),
            *self._last_rows(block, done, limit, part, col),
        )

    def _last_rows(
        self, block: RegisterBlock, done: Expr, limit: Expr, part: _Part, col: Expr | None
    ) -> list[tirx.Stmt]:
        """Those behind ``done`` of ``limit``."""
        alone = col is None or block.rows <= 2 or self.gemm.c_reach is not None or self.others
        gathered = None if alone else self.epilogue.gathered(block)
        if gathered is None or col is None:
            return self._blocks_of_rest(block, done, limit, part)
        self.gathered = gathered, done
        parts = self._blocks_of_rest(block, done, limit, part)
        self.gathered = None
        test, rest = limit > done, limit - done
        if self.gemm.last is not None:
            test = tirx.all(test, self.gemm.last)
        work = _by_columns(self.whole, partial(gathered.emit, done, col, rest))
        return [*gathered.begin(), *parts, tirx.IfThenElse(test, work, None)]

    def _blocks_of_rest(self, block: RegisterBlock, done: Expr, limit: Expr, part: _Part) -> list[tirx.Stmt]:
        """The blocks of last rows."""
        if self._has_exact_rows(block):
            return [_rest(replace(block, rows=rest), done, limit, part) for rest in range(1, block.rows)]
        sizes = _powers_below(block.rows)
        return [_tail(size, done, limit, partial(part, replace(block, rows=size))) for size in sizes]

    def _static_rows(self, block: RegisterBlock, rows: int, part: _Part) -> tirx.Stmt:
        """``part`` for a known number of rows."""
        whole = rows // block.rows
        parts = [self._whole_rows(block, whole, part)] if whole else []
        done = whole * block.rows
        for size in _powers_below(block.rows):
            if (rows - whole * block.rows) & size:
                parts.append(part(replace(block, rows=size), index(done)))
                done += size
        return sequence(*parts)

    def _whole_rows(self, block: RegisterBlock, count: int | Expr, part: _Part) -> tirx.Stmt:
        """``part`` for ``count`` blocks of all their rows."""
        return self._as_narrow(block, lambda some: loop(count, lambda i: part(some, i * block.rows)))

    def _as_narrow(self, block: RegisterBlock, part: Callable[[RegisterBlock], tirx.Stmt]) -> tirx.Stmt:
        """``part`` for ``block``, or for a `narrower` one, not all of whose columns count."""
        if self.narrower is None:
            return part(block)
        (test, narrow), whole = self.narrower, self.whole
        self.whole = False
        few = part(replace(narrow, rows=block.rows))
        self.whole = whole
        return tirx.IfThenElse(test, few, part(block))

    def _has_exact_rows(self, block: RegisterBlock) -> bool:
        """Whether there is a block for each number of rows that may be left. Of float blocks their width
        alone decides, so that tiles which bring operands in other ways give the same bits."""
        if block.form == "fma":
            return self._is_wide(block)
        is_full = block == self.gemm.block and (self.whole is not False or self.rest is not None)
        return is_full and block.form not in MATRIX_FORMS

    def _is_wide(self, block: RegisterBlock) -> bool:
        """Whether a block has more than one vector of those columns that a product may have."""
        return block.cols == self.gemm.block.cols or block.cols > block.lanes

    def _block(self, block: RegisterBlock, row: Expr, col: Expr) -> tirx.Stmt:
        """One register block from its first row and column, unless none of its elements is wanted."""
        begun = [] if self.handed is None else self.handed.begin(block)
        others = (other._as_part(block, row, col, self.whole, self.rest) for other in self.others)
        work = sequence(*begun, self._wanted(block, row, col), *others)
        if self.gemm.c_reach is None:
            return work
        nearest = cast_to(col - row - (block.rows - 1), dtype_of(self.gemm.c_reach))
        return tirx.IfThenElse(nearest <= self.gemm.c_reach, work, None)

    def _as_part(
        self, block: RegisterBlock, row: Expr, col: Expr, whole: bool | Expr, rest: Expr | None
    ) -> tirx.Stmt:
        """One register block of a product that follows another one's, whose columns it has."""
        self.whole, self.rest = whole, rest
        return self._wanted(block, row, col)

    def _wanted(self, block: RegisterBlock, row: Expr, col: Expr) -> tirx.Stmt:
        """One register block: start value, K loop, write back, epilogue."""
        gemm = self.of_band
        gemm = gemm if self.depths is None else replace(gemm, depth=self.depths.at(row))
        tiles = self._tiles(gemm, block, row, col)
        asked = [] if self.bands is None else self.bands.asked(row, col, block)
        begun = [part for tile in tiles for part in (tirx.AllocBuffer(tile.data), tile.start())]
        parts = [*begun, *asked, tiles[0].multiply()]
        wholes = [*(True for _ in tiles[1:]), self.whole]
        finished = [self._finish(tile, whole) for tile, whole in zip(tiles, wholes, strict=True)]
        finish = [part for part in finished if part is not None]
        if self.gemm.last is None and self.gemm.c.buffer in self.gemm.registers:
            return sequence(*parts, *finish)
        stored = [tile.write_back() for tile in tiles]
        if self.gemm.last is None:
            return sequence(*parts, *stored, *finish)
        return sequence(*parts, tirx.IfThenElse(self.gemm.last, sequence(*finish), sequence(*stored)))

    def _tiles(self, gemm: MicroGemm, block: RegisterBlock, row: Expr, col: Expr) -> list[RegisterTile]:
        """The tile of a block; of one whose columns end in a part of a vector that of the whole ones and that
        of the part, which the first multiplies beside its own."""
        joined = None if self.handed is None else Joined(self.handed.sums(gemm.c.buffer))
        made = partial(_tile_kind(block.form), gemm, self.memory, self.fused_multiply, joined)
        whole = block.vectors * block.lanes
        part = block.cols - whole
        if part == 0:
            return [made(block, row, col, self.offset, self.rest)]
        rest = None if self.rest is None else self.rest - whole
        narrow = replace(block, cols=part, lanes=part, beside=block.vectors)
        other = made(narrow, row, col + whole, self.offset, rest)
        return [made(replace(block, cols=whole, beside=1), row, col, self.offset, None, other), other]

    def _finish(self, tile: RegisterTile, whole: bool | Expr) -> tirx.Stmt | None:
        """The epilogue of a tile, all of whose columns count where it is ``whole``, behind asking for what
        that of the next one will touch, where there is such: those of another tile may be at work on another
        core. In front of the K loop that made loops which read ``a`` in place take up to 1.9 times as long on
        a Xeon of model 207."""
        block, row, col = tile.block, tile.row, tile.col
        if self.gathered is not None:
            gathered, first = self.gathered
            return gathered.put(block, tile.data, row - first)
        finish = _by_columns(whole, partial(self.epilogue.emit, row, col, block, tile.data))
        if finish is None or not block.rows == self.gemm.block.rows > 1:
            return finish
        if self.bands is None:
            next_row, next_col, is_one = row + block.rows, col, row + block.rows < trips_of(self.gemm.rows)
        else:
            next_row, next_col, is_one = row, col + block.cols, col + block.cols < trips_of(self.gemm.columns)
        ahead = self.epilogue.ahead(next_row, next_col, block)
        return finish if ahead is None else sequence(tirx.IfThenElse(is_one, ahead, None), finish)


def _by_columns(whole: bool | Expr, emit: Callable[[bool], tirx.Stmt | None]) -> tirx.Stmt | None:
    """What ``emit`` makes of ``whole`` columns, or of others; both where a condition tells them apart."""
    if isinstance(whole, bool):
        return emit(whole)
    every = emit(True)
    return None if every is None else tirx.IfThenElse(whole, every, emit(False))


def _side_by_side(block: RegisterBlock, start: int, count: int, part: _Part) -> tirx.Stmt:
    """``count`` blocks from column ``start`` on."""
    if count == 1:
        return part(block, index(start))
    return loop(count, lambda j: part(block, j * block.cols + start))


def _rest(block: RegisterBlock, done: Expr, limit: Expr, part: _Part) -> tirx.Stmt:
    """``part`` for ``block`` behind ``done`` rows, where exactly its rows are left."""
    return tirx.IfThenElse(limit - done == block.rows, part(block, done), None)


def _tile_kind(form: str) -> type[RegisterTile]:
    """The class that emits a register block of a form."""
    if form == "across":
        return AcrossTile
    return MatrixTile if form in MATRIX_FORMS else RegisterTile


def _narrow(block: RegisterBlock, width: int) -> RegisterBlock:
    return replace(block, cols=width, lanes=min(block.lanes, width))


def _tail(size: int, whole: Expr, limit: Expr, part: Callable[[Expr], tirx.Stmt]) -> tirx.Stmt:
    """``part`` at its first row or column, where those that remain behind ``whole`` have the bit ``size``."""
    rest = limit - whole
    bit = tirx.bitwise_and(rest, index(size))
    before = rest - tirx.bitwise_and(rest, index(2 * size - 1))
    return tirx.IfThenElse(bit != 0, part(whole + before), None)


def _powers_below(limit: int) -> Iterator[int]:
    """Powers of two below ``limit``, largest first."""
    size = 1 << max(limit - 1, 0).bit_length()
    while size > 1:
        size //= 2
        if size < limit:
            yield size
