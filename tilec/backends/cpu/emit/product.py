"""TIR of `MicroGemm` among the other statements: its operands in memory, its epilogue as a small Parallel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.backends.cpu.emit.numbers.float8_tables import at_once
from tilec.backends.cpu.emit.statements import emit
from tilec.backends.cpu.emit.vectors.first_lanes import first_lanes, has_first_lanes
from tilec.backends.cpu.emit.vectors.result_lines import ResultLines
from tilec.backends.cpu.llvm_text import with_llvm
from tilec.backends.cpu.nodes import JoinedProducts, Matrix, MicroGemm, RegisterBlock
from tilec.backends.cpu.products.blocks.microkernel import emit_joined, emit_product
from tilec.backends.cpu.products.blocks.register_tile import APART, each_vector, lane
from tilec.backends.cpu.products.blocks.tile_product import emit_tiles
from tilec.backends.cpu.products.elementwise import map_expressions
from tilec.backends.cpu.products.forms.instructions import instruction_of
from tilec.backends.cpu.products.forms.tile_forms import TileForm
from tilec.backends.cpu.products.forms.word_forms import word_form
from tilec.backends.cpu.products.tir import ONCE, get, index, span
from tilec.ir.exprs import transform
from tilec.ir.nodes import Block, Parallel, Region, Store
from tilec.lowering.analysis.regions import static
from tilec.lowering.emission.statements import sequence
from tilec.lowering.emission.storage import Storage, element_bytes, stored_type
from tilec.lowering.math.vectors import lanes_of
from tilec.lowering.passes.base import rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext


@emit.register(MicroGemm)
def _(stmt: MicroGemm, ctx: LaneContext) -> tirx.Stmt:
    block = stmt.block
    _take(stmt, ctx)
    epilogue = _Epilogue(stmt, ctx)
    gemm, memory, form = _placed(stmt, ctx), _Tiles(ctx), word_form(block.along or block.form)
    if isinstance(form, TileForm):
        return with_llvm(form.source, emit_tiles(form, gemm, memory, epilogue))
    product = emit_product(gemm, memory, ctx.target.has_fma, epilogue)
    return product if form is None else with_llvm(form.source, product)


@emit.register(JoinedProducts)
def _(stmt: JoinedProducts, ctx: LaneContext) -> tirx.Stmt:
    for gemm in stmt.parts:
        _take(gemm, ctx)
    handed = _HandedOn(stmt.registers, ctx)
    products = [(_placed(gemm, ctx), _Epilogue(gemm, ctx, handed)) for gemm in stmt.parts]
    joined = emit_joined(products, _Tiles(ctx), ctx.target.has_fma, handed)
    form = word_form(stmt.parts[0].block.form)
    return with_llvm(APART, joined if form is None else with_llvm(form.source, joined))


def _take(gemm: MicroGemm, ctx: LaneContext) -> None:
    """Notes the road of a product, and the function that its loops call."""
    block, dtype = gemm.block, str(gemm.c.buffer.dtype)
    instruction = instruction_of(block, dtype, ctx.target)
    along = " along K" if block.form == "across" else ""
    how = f"product by {block.rows} x {block.cols} blocks of {dtype}, {instruction}{along}"
    loss = gemm.loss if block.form == "fma" else None
    ctx.take(replace(gemm, body=()), "microkernel", how, loss, product=instruction)
    ctx.functions["tilec_once"] = ONCE


def _placed(gemm: MicroGemm, ctx: LaneContext) -> MicroGemm:
    """``gemm`` with the expressions in its fields as TIR."""

    def region(old: Region) -> Region:
        return replace(old, start=tuple(ctx.value(start) for start in old.start))

    def matrix(old: Matrix) -> Matrix:
        return replace(old, region=region(old.region))

    def number(old: int | Expr) -> int | Expr:
        return old if isinstance(old, int) else ctx.value(old)

    def optional(old: Expr | None) -> Expr | None:
        return None if old is None else ctx.value(old)

    return replace(
        gemm,
        a=matrix(gemm.a),
        b=matrix(gemm.b),
        c=region(gemm.c),
        clear=ctx.value(gemm.clear),
        last=optional(gemm.last),
        c_reach=optional(gemm.c_reach),
        a_reach=optional(gemm.a_reach),
        a_place=None if gemm.a_place is None else matrix(gemm.a_place),
        in_place=optional(gemm.in_place),
        rows=number(gemm.rows),
        columns=number(gemm.columns),
        depth=number(gemm.depth),
    )


@dataclass(frozen=True, eq=False)
class _Tiles:
    """The buffers of the tile IR as a microkernel sees them: compute values at TIR indices, no bounds."""

    ctx: LaneContext

    def load(self, buffer: Var, indices: tuple[Expr, ...], lanes: int = 1) -> Expr:
        """The values of ``lanes`` consecutive elements along the last index."""
        storage = self.ctx.storage(buffer)
        raw = tirx.BufferLoad(storage.data, [span(storage.offset(indices), lanes)])
        return self.ctx.decode(raw, storage.dtype)

    def at_once(self, buffer: Var) -> int:
        """How many elements `load` brings to their type together, faster than vector by vector; 1: none."""
        return at_once(self.ctx.target, self.ctx.storage(buffer).dtype)

    def has_first(self, buffer: Var) -> bool:
        """Whether `first` takes elements of ``buffer``."""
        return has_first_lanes(self.ctx.target, self.ctx.storage(buffer).dtype)

    def first(self, buffer: Var, indices: tuple[Expr, ...], lanes: int, count: Expr) -> Expr:
        """As `load`, but of ``count`` elements, and zeros behind them."""
        dtype = self.ctx.storage(buffer).dtype
        return first_lanes(self.address(buffer, indices), count, dtype, lanes, self.ctx.functions)

    def word(self, buffer: Var, indices: tuple[Expr, ...], dtype: str) -> Expr:
        """The bits in memory that start at an element, as the type of one or several words."""
        storage, (word, _, lanes) = self.ctx.storage(buffer), dtype.partition("x")
        count = element_bytes(word) * int(lanes or 1) // element_bytes(storage.dtype)
        return tirx.reinterpret(dtype, tirx.BufferLoad(storage.data, [span(storage.offset(indices), count)]))

    def address(self, buffer: Var, indices: tuple[Expr, ...]) -> Expr:
        """Where an element lies."""
        storage = self.ctx.storage(buffer)
        return tirx.address_of(tirx.BufferLoad(storage.data, [storage.offset(indices)]))

    def pitch(self, buffer: Var, axis: int) -> Expr:
        """Bytes from an element to the next along an axis."""
        storage = self.ctx.storage(buffer)
        return storage.strides[axis] * element_bytes(storage.dtype)

    def count(self, buffer: Var, axis: int) -> Expr:
        """Elements along an axis."""
        return self.ctx.value(self.ctx.storage(buffer).shape[axis])

    def store(self, buffer: Var, indices: tuple[Expr, ...], value: Expr) -> tirx.Stmt:
        """Writes the lanes of ``value`` along the last index."""
        storage = self.ctx.storage(buffer)
        place = span(storage.offset(indices), lanes_of(value))
        return tirx.BufferStore(storage.data, self.ctx.encode(value, storage.dtype), [place])


class _HandedOn:
    """The arrays by which products hand sums on to each other, for each block anew."""

    def __init__(self, buffers: tuple[Var, ...], ctx: LaneContext) -> None:
        self.buffers = buffers
        self.ctx = ctx
        self.tiles: dict[Var, Var] = {}

    def begin(self, block: RegisterBlock) -> list[tirx.Stmt]:
        """The arrays of a block."""
        self.tiles = {buffer: _tile(buffer, block, self.ctx) for buffer in self.buffers}
        return [tirx.AllocBuffer(self.ctx.storage(tile).data) for tile in self.tiles.values()]

    def sums(self, buffer: Var) -> Var | None:
        """The elements of an array; None where the tile has none."""
        tile = self.tiles.get(buffer)
        return None if tile is None else self.ctx.storage(tile).data


def _tile(buffer: Var, block: RegisterBlock, ctx: LaneContext) -> Var:
    """The array that holds one block of ``buffer``."""
    shape, dtype = (block.rows, block.cols), str(buffer.dtype)
    data = tirx.decl_buffer((block.rows * block.cols,), stored_type(dtype), f"{buffer.name}_block")
    tile = tirx.decl_buffer(shape, dtype, f"{buffer.name}_block", scope="local")
    extents, strides = tuple(map(index, shape)), (index(block.cols), index(1))
    ctx.storages[tile] = Storage(data, dtype, extents, strides, "int32")
    return tile


class _Epilogue:
    """Runs the body of a product over one register block after the other.

    The block's values go through a small array: its loops may then be of any form, and the accumulators stay
    free of addresses that are computed at run time. Those that products hand on are theirs."""

    def __init__(self, gemm: MicroGemm, ctx: LaneContext, handed: _HandedOn | None = None) -> None:
        self.gemm = gemm
        self.ctx = ctx
        self.handed = handed
        self.tensors = ResultLines(gemm, ctx)

    def ahead(self, row: Expr, col: Expr, block: RegisterBlock) -> tirx.Stmt | None:
        """Asks for the lines of the tensors that `emit` will touch."""
        return self.tensors.of(row, col, block)

    def emit(
        self, row: Expr, col: Expr, block: RegisterBlock, accumulators: Var, whole: bool
    ) -> tirx.Stmt | None:
        """The epilogue of the block whose first element is (row, col), all of whose columns count where it is
        ``whole``; None where there is none."""
        handed = {} if self.handed is None else self.handed.tiles
        if not self.gemm.body and self.gemm.c.buffer not in handed:
            return None
        with self.ctx.scope():
            names = (buffer for buffer in self.gemm.registers if buffer not in handed)
            own = {buffer: _tile(buffer, block, self.ctx) for buffer in names}
            tiles, parts = {**handed, **own}, self._rooms(own)
            if self.gemm.c.buffer in tiles:
                parts.append(self._spilled(tiles[self.gemm.c.buffer], block, accumulators))
            with self.ctx.rolled_scope(not whole):
                work = emit(self._work(row, col, block, block.rows, tiles, whole), self.ctx)
            return sequence([*parts, *([work] if work is not None else [])])

    def gathered(self, block: RegisterBlock) -> _Gathered | None:
        """What the blocks of last rows, fewer than those of ``block``, have done for them together; None
        where nothing follows a block, or other products go on with it."""
        if not self.gemm.body or self.handed is not None:
            return None
        return _Gathered(
            self, block, {buffer: _tile(buffer, block, self.ctx) for buffer in self.gemm.registers}
        )

    def _rooms(self, tiles: dict[Var, Var]) -> list[tirx.Stmt]:
        """The arrays of tiles."""
        return [tirx.AllocBuffer(self.ctx.storage(tile).data) for tile in tiles.values()]

    def _spilled(
        self, tile: Var, block: RegisterBlock, accumulators: Var, behind: Expr | int = 0
    ) -> tirx.Stmt:
        """The sums of a block in the rows of a tile that are ``behind`` so many others."""
        storage = self.ctx.storage(tile)

        def moved(r: Expr, v: Expr) -> tirx.Stmt:
            at = lane(block, r, v)
            value = self.ctx.encode(get(accumulators, at, block.lanes), storage.dtype)
            return tirx.BufferStore(storage.data, value, [span(at + behind * block.cols, block.lanes)])

        return each_vector(block, moved)

    def _work(
        self,
        row: Expr,
        col: Expr,
        block: RegisterBlock,
        rows: int | Expr,
        tiles: dict[Var, Var],
        whole: bool,
    ) -> Parallel:
        """The body over the elements of one block, of which there are ``rows``, its registers replaced by
        their arrays."""
        inner = tuple(tirx.Var(var.name, "int32") for var in self.gemm.vars)
        outer = (
            self._origin(row, self.gemm.rows, rows),
            self._origin(col, self.gemm.columns if whole else self._columns(), block.cols),
        )
        places = {var: first + step for var, first, step in zip(self.gemm.vars, outer, inner, strict=True)}

        def visit(expr: Expr) -> Expr | None:
            if isinstance(expr, TensorLoad) and expr.source in tiles:
                return tirx.BufferLoad(tiles[expr.source], list(inner))
            return places.get(expr) if isinstance(expr, Var) else None

        body = map_expressions(self.gemm.body, lambda expr: transform(expr, visit))
        return Parallel(inner, (rows, block.cols), _retargeted(body, tiles, inner), loc=self.gemm.loc)

    def _columns(self) -> int:
        return static(self.gemm.c.extent[-1])

    def _origin(self, value: Expr, count: int | Expr, size: int | Expr) -> Var:
        """A variable of the tile IR for the first row or column of a block of ``size`` out of ``count``."""
        origin = tirx.Var("origin", "int32")
        self.ctx.facts.bind_range(origin, 0, count - size + 1)
        self.ctx.env[origin] = value
        return origin


class _Gathered:
    """The last rows of a product, whose blocks leave their sums in the arrays of one block: what follows is
    there once for all of them, in loops that stay loops."""

    def __init__(self, epilogue: _Epilogue, block: RegisterBlock, tiles: dict[Var, Var]) -> None:
        self.epilogue = epilogue
        self.block = block
        self.tiles = tiles

    def begin(self) -> list[tirx.Stmt]:
        """The arrays."""
        return self.epilogue._rooms(self.tiles)

    def put(self, block: RegisterBlock, accumulators: Var, behind: Expr) -> tirx.Stmt | None:
        """Takes the sums of a block ``behind`` so many rows; None where these are in memory."""
        tile = self.tiles.get(self.epilogue.gemm.c.buffer)
        return None if tile is None else self.epilogue._spilled(tile, block, accumulators, behind)

    def emit(self, row: Expr, col: Expr, rows: Expr, whole: bool) -> tirx.Stmt:
        """The epilogue of ``rows`` rows from the one at ``row``."""
        ctx, count = self.epilogue.ctx, tirx.Var("rows", "int32")
        with ctx.scope(), ctx.rolled_scope(True):
            ctx.facts.bind_range(count, 1, self.block.rows)
            ctx.env[count] = rows
            work = self.epilogue._work(row, col, self.block, count, self.tiles, whole)
            emitted = emit(work, ctx)
        return sequence([] if emitted is None else [emitted])


def _retargeted(body: Block, tiles: dict[Var, Var], inner: tuple[Var, ...]) -> Block:
    """``body`` with its stores to registers going to their arrays."""

    def place(stmt: Store) -> Store:
        return replace(stmt, buffer=tiles[stmt.buffer], indices=inner) if stmt.buffer in tiles else stmt

    return rewrite_blocks(body, lambda block: [place(s) if isinstance(s, Store) else s for s in block])
