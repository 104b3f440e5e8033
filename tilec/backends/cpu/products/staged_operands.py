"""Operands that a Copy only stages: a base for passes that look behind their tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.nodes import Matrix, MicroGemm
from tilec.backends.cpu.products.forms.dot_forms import dot_form
from tilec.backends.cpu.products.forms.tile_forms import TILE_FORMS
from tilec.backends.cpu.products.forms.word_forms import word_form
from tilec.backends.cpu.products.packing import has_unit_stride
from tilec.backends.cpu.products.result_rows import result_rows
from tilec.ir.exprs import int_value, loads
from tilec.ir.nodes import Alloc, Block, Copy, Kernel, Launch, Region, Stmt, is_global, walk
from tilec.lowering.analysis.regions import is_whole, static
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.analysis.uses import changed_in, users
from tilec.lowering.emission.storage import compute_type
from tilec.lowering.passes.base import rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.products.forms.dot_forms import DotForm
    from tilec.targets import Target

#: A condition that holds.
_TRUE = tirx.const(True, "bool")

#: Rows of ``a`` up to which a ``b`` with K side by side is read in place by vectors along K.
_ROWS_ACROSS = 32

#: The same where a matrix unit would do the product.
_ROWS_ACROSS_TILES = 4


class StagedOperands(ScopedRewrite):
    """Rewrites one launch. ``sources`` maps a staged tile to the copy that fills it, while in scope."""

    def __init__(self, kernel: Kernel, launch: Launch) -> None:
        super().__init__(kernel, launch)
        self.users = users(launch.body)
        self.written = changed_in(launch)
        self.sources: dict[Var, Copy] = {}

    def block(self, block: Block) -> Block:
        """A copy is known from where it stands to the end of its block."""
        before = dict(self.sources)
        result = super().block(block)
        self.sources = before
        return result

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """Collects copies on the way down."""
        if isinstance(stmt, Copy) and self._stages(stmt):
            self.sources[stmt.dst.buffer] = stmt
        return super().stmt(stmt)

    def _stages(self, copy: Copy) -> bool:
        """Whether the tile that ``copy`` fills is nothing but a window on its source, in whatever type."""
        tile, source = copy.dst.buffer, copy.src.buffer
        if not is_global(source) or source in self.written:
            return False
        if is_global(tile):
            return False
        if not all(self.reads(user, tile) for user in self.users[tile] if user is not copy):
            return False
        if any(True for start in copy.src.start for _ in loads(start)):
            return False
        return is_whole(copy.dst)

    def reads(self, user: Stmt, tile: Var) -> bool:
        """Whether ``user`` is a product that has ``tile`` as an operand alone, not as its accumulator."""
        return isinstance(user, MicroGemm) and not user.c.buffer.same_as(tile)

    def source_of(self, matrix: Matrix) -> Matrix | None:
        """``matrix`` as a part of the source of its tile; None where the tile is more than that, or of
        another type."""
        window = self.window_of(matrix)
        if window is None or not of_one_type(window.region.buffer, matrix.region.buffer):
            return None
        return window

    def window_of(self, matrix: Matrix) -> Matrix | None:
        """The part of the source of its tile that ``matrix`` holds, in whatever type; None where the tile is
        more than that."""
        copy = self.sources.get(matrix.region.buffer)
        if copy is None:
            return None
        axes = axis_pairs(copy)
        if axes is None or matrix.row not in axes or matrix.col not in axes:
            return None
        start, extent = list(copy.src.start), [1] * len(copy.src.start)
        for axis, offset in enumerate(matrix.region.start):
            if axis in axes:
                start[axes[axis]] = self.facts.simplify(start[axes[axis]] + offset)
                extent[axes[axis]] = matrix.region.extent[axis]
        return Matrix(
            Region(copy.src.buffer, tuple(start), tuple(extent)), axes[matrix.row], axes[matrix.col]
        )

    def few_rows(self, gemm: MicroGemm) -> Expr | None:
        """The condition under which so few rows of ``a`` count that vectors along K pay; None where that is
        never so. An ``a`` that is made on chip has as many as tensors take of the sums."""
        most = _most_rows(gemm)
        moved = self.source_of(gemm.a)
        if static(gemm.a.region.extent[gemm.a.row]) <= most:
            return _TRUE
        if moved is None:
            counts = result_rows(gemm.c.buffer, self.users)
            return _TRUE if any(self.facts.prove(count <= most) is True for count in counts) else None
        start, size = moved.region.start[moved.row], moved.region.buffer.shape[moved.row]
        count = self.facts.simplify(size - start)
        if self.facts.prove(start >= 0) is not True or self.facts.prove(count > most) is True:
            return None
        return count <= most


def of_one_type(one: Var, other: Var) -> bool:
    """Whether the elements of two buffers are of one type."""
    return str(one.dtype) == str(other.dtype)


def _most_rows(gemm: MicroGemm) -> int:
    """Rows up to which vectors along K take less time than bringing ``b`` into panels."""
    return rows_of_a_step(gemm) if int_value(gemm.clear) == 1 else _rows_across(gemm)


def _rows_across(gemm: MicroGemm) -> int:
    return _ROWS_ACROSS_TILES if gemm.block.form in TILE_FORMS else _ROWS_ACROSS


def rows_of_a_step(gemm: MicroGemm) -> int:
    """Rows up to which vectors along K pay where all of K is one step: the sums over lanes, one for each row,
    take most of it. On Zen 5 with K = 64 and 128 columns vectors along K were ahead with 4 rows and behind
    with 8, in float32 and beside vdpbf16ps."""
    most, depth = _rows_across(gemm), int_value(gemm.depth)
    if depth is None:
        return most
    form = word_form(gemm.block.form)
    return min(most, depth // (gemm.block.lanes * (1 if form is None else form.group)))


def dot_of(gemm: MicroGemm, moved: Matrix, target: Target) -> DotForm | None:
    """What multiplies words of K of ``gemm`` on ``moved`` as ``b``; None where nothing does."""
    types = (str(region.buffer.dtype) for region in (gemm.a.region, moved.region, gemm.c))
    return dot_form(target, *types)


def suits_vectors_along_k(gemm: MicroGemm, moved: Matrix, target: Target) -> bool:
    """Whether ``gemm`` on ``moved`` as ``b`` may have its vectors along K, if it has few rows: K lies side by
    side in both operands; floats are summed in float32, or an instruction multiplies words."""
    a, b = gemm.a.region, moved.region.buffer
    floats = str(gemm.c.buffer.dtype) == "float32" and has_floats(gemm, moved)
    known = floats or dot_of(gemm, moved, target) is not None
    side_by_side = moved.row == len(b.shape) - 1 and gemm.a.col == len(a.extent) - 1
    return known and side_by_side and has_unit_stride(b)


def has_floats(gemm: MicroGemm, moved: Matrix) -> bool:
    """Whether ``gemm`` on ``moved`` as ``b`` computes in float32: its elements are floats, or bytes that it
    makes floats of, beside an ``a`` of floats."""
    a, b = (str(matrix.region.buffer.dtype) for matrix in (gemm.a, moved))
    return compute_type(a) == "float32" and (compute_type(b) == "float32" or b in ("int8", "uint8"))


def other_axes(matrix: Matrix) -> list[int]:
    """The axes of the region that are neither row nor column."""
    return [axis for axis in range(len(matrix.region.start)) if axis not in (matrix.row, matrix.col)]


def axis_pairs(copy: Copy) -> dict[int, int] | None:
    """Axis of the source by axis of the tile: those longer than 1, and between sides that match from their
    last axes on, others, as the rows of a tile of one; None where the longer ones do not pair up."""
    tile, source = (
        [axis for axis, extent in enumerate(region.extent) if int_value(extent) != 1]
        for region in (copy.dst, copy.src)
    )
    if len(tile) != len(source):
        return None
    pairs = dict(zip(tile, source, strict=True))
    ahead = len(copy.src.extent) - len(copy.dst.extent)
    if ahead < 0 or any(other - axis != ahead for axis, other in pairs.items()):
        return pairs
    return {axis: axis + ahead for axis in range(len(copy.dst.extent))}


def without_unread(body: Block) -> Block:
    """``body`` without tiles that are written by copies alone, and those copies."""
    used = users(body)
    unread = {
        stmt.buffer
        for stmt in walk(body)
        if isinstance(stmt, Alloc)
        and used.get(stmt.buffer)
        and all(isinstance(user, Copy) and user.dst.buffer.same_as(stmt.buffer) for user in used[stmt.buffer])
    }
    return _drop(body, unread)


def _drop(body: Block, unread: set[Var]) -> Block:
    def needed(stmt: Stmt) -> bool:
        if isinstance(stmt, Alloc):
            return stmt.buffer not in unread
        return not (isinstance(stmt, Copy) and stmt.dst.buffer in unread)

    return rewrite_blocks(body, lambda block: [stmt for stmt in block if needed(stmt)])
