"""Gemm becomes MicroGemm: which register block the target takes, and which axes of the operands are which."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.nodes import Matrix, MicroGemm, RegisterBlock
from tilec.backends.cpu.products.forms.word_forms import word_forms
from tilec.errors import UnsupportedError
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Block, Gemm, Kernel, Stmt
from tilec.ir.places import place_of
from tilec.ir.roads import Loss
from tilec.lowering.analysis.regions import may_overlap
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.math.float8 import FLOAT8_TYPES
from tilec.lowering.passes.base import Pass, rewrite_launch_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.products.forms.dot_forms import DotForm
    from tilec.targets import Target

#: K steps per trip of the inner loop; more gave nothing on Zen 5.
_UNROLL = 4
#: Blocks of rows from which on larger ones gain: 16 rows on AVX-512 take 0.8 of the time, eight 1.07.
_MANY = 4

#: Operand types whose products are exact in the accumulator they are converted to first.
_ACCUMULATORS = {
    "float32": ("float16", "bfloat16", "float32", *FLOAT8_TYPES),
    "float16": ("float16", *FLOAT8_TYPES),
    "bfloat16": ("bfloat16",),
    "float64": ("float64",),
    "int32": ("int8", "uint8", "int32"),
}


class SelectMicrokernel(Pass):
    """In: ``Gemm`` on tiles. Out: ``MicroGemm`` on the same tiles, with a register block for the target."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with every product in microkernel form."""

        def rewrite(block: Block) -> list[Stmt]:
            return [_select(stmt, target) if isinstance(stmt, Gemm) else stmt for stmt in block]

        return rewrite_launch_blocks(kernel, rewrite)


def register_block(target: Target, dtype: str, halves: bool = False) -> RegisterBlock:
    """The block for accumulators of ``dtype``: two vectors wide, so high that operands still fit beside it;
    four wide where products take ``a`` by lane, which then has a register for each row.

    8x32, 6x16 and 4x8 for float32 with AVX-512, AVX2 and SSE4; 6x16 on aarch64, the block with
    the fewest loads for its products where ``a`` is read row by row. ``halves``: sums stay float16, two in
    the place of each."""
    lanes = target.lanes(16 if halves else 8 * max(element_bytes(dtype), 4))
    if target.has_lane_products:
        ahead = min(lanes, _UNROLL)
        return RegisterBlock(rows=6, cols=4 * lanes, lanes=lanes, unroll=_UNROLL, ahead=ahead, halves=halves)
    return RegisterBlock(rows=_most_rows(target), cols=2 * lanes, lanes=lanes, unroll=_UNROLL, halves=halves)


def _most_rows(target: Target) -> int:
    """Rows of a block of two vectors beside whose sums operands still fit."""
    few = 6 if target.has_fma else 4
    return 8 if target.vector_registers >= 32 else few


def across_block(target: Target, dot: DotForm | None, most: int) -> RegisterBlock:
    """The block for few rows, ``most`` at most, and a ``b`` with K side by side: its vectors run along K
    (form "across"), in the words of ``dot`` where the target has that for the types.

    Each block of rows adds an offset of ``dot`` to the words of ``b`` that it reads. Many rows take half the
    columns, so that there are half as many blocks of them."""
    rows, cols = 4 if target.vector_registers >= 32 else 2, 4
    group, along = (1, "") if dot is None else (dot.group, dot.name)
    if dot is not None and dot.offset and most >= _MANY * rows:
        rows, cols = 2 * rows, cols // 2
    unroll = group * target.lanes(32)
    return RegisterBlock(rows, cols, lanes=cols, unroll=unroll, form="across", along=along)


def low_block(target: Target, dtype: str, rows: int, columns: int, halves: bool = False) -> RegisterBlock:
    """The block for so few rows of a tile that ``b`` is read in place: all of them where the target's block
    has as many. It is as wide as three quarters of the registers, eight vectors and the ``columns`` of the
    tile allow, to read rows of ``b`` in long pieces."""
    block = register_block(target, dtype, halves)
    if rows > _most_rows(target):
        return _no_wider(block, columns)
    vectors = min(8, 3 * target.vector_registers // 4 // rows)
    return _no_wider(replace(block, rows=rows, cols=block.lanes << (vectors.bit_length() - 1)), columns)


def plain_block(target: Target, dtype: str, columns: int) -> RegisterBlock:
    """The block for multiply-adds into ``dtype`` on a tile of so many ``columns``."""
    return _no_wider(register_block(target, dtype), columns)


def _no_wider(block: RegisterBlock, columns: int) -> RegisterBlock:
    """``block`` of the columns of a tile that has fewer."""
    width = min(block.cols, 1 << (columns.bit_length() - 1))
    return replace(block, cols=width, lanes=min(block.lanes, width))


def _select(gemm: Gemm, target: Target) -> MicroGemm:
    _check(gemm)
    a_row, a_col = _axes(len(gemm.a.extent), gemm.trans_a)
    b_row, b_col = _axes(len(gemm.b.extent), gemm.trans_b)
    return MicroGemm(
        a=Matrix(gemm.a, a_row, a_col),
        b=Matrix(gemm.b, b_row, b_col),
        c=gemm.c,
        clear=gemm.clear,
        rows=gemm.a.extent[a_row],
        columns=gemm.c.extent[-1],
        depth=gemm.a.extent[a_col],
        block=_block(gemm, target, gemm.a.extent[a_col]),
        loss=_loss(gemm, target, gemm.a.extent[a_col]),
        vars=(tirx.Var("i", "int32"), tirx.Var("j", "int32")),
        loc=gemm.loc,
    )


def _block(gemm: Gemm, target: Target, depth: int | Expr) -> RegisterBlock:
    """The target's block, with the fastest instruction that fits types and extents."""
    block, columns = _plain_block(gemm, target), int_value(gemm.c.extent[-1]) or 1
    rows, steps = int_value(gemm.c.extent[-2]), int_value(depth)
    if rows is not None and steps is not None:
        fitting = (form.block(block, rows, steps, columns) for form in _forms(gemm, target))
        block = next((found for found in fitting if found is not None), block)
    return _no_wider(block, columns)


def _plain_block(gemm: Gemm, target: Target) -> RegisterBlock:
    """The block for multiply-adds; of float16 where all three matrices and the target have it."""
    types = {str(region.buffer.dtype) for region in (gemm.a, gemm.b, gemm.c)}
    halves = types == {"float16"} and target.has_half_products
    return register_block(target, str(gemm.c.buffer.dtype), halves)


def _forms(gemm: Gemm, target: Target) -> tuple[DotForm, ...]:
    return word_forms(target, *(str(region.buffer.dtype) for region in (gemm.a, gemm.b, gemm.c)))


def _loss(gemm: Gemm, target: Target, depth: int | Expr) -> Loss | None:
    """What keeps a product from its target's fastest instruction, or from vectors as wide as the target's."""
    block, columns = _plain_block(gemm, target), int_value(gemm.c.extent[-1]) or 1
    best, steps = next(iter(_forms(gemm, target)), None), int_value(depth)
    if best is not None and steps is not None:
        group, lanes = best.demands(block)
        if steps % group:
            why = f"K = {steps} is no multiple of {group}, which {best.name} takes at once"
            return Loss("microkernel", why, f"choose a K tile of a multiple of {group}")
        if columns % lanes:
            why = f"{columns} columns are no multiple of the {lanes} of {best.name}"
            return Loss("microkernel", why, f"choose an N tile of a multiple of {lanes}")
    if columns < block.lanes:
        why = f"{columns} columns do not fill a vector of {block.lanes}"
        return Loss("microkernel", why, f"choose an N tile of a multiple of {2 * block.lanes}")
    return None


def _axes(rank: int, transposed: bool) -> tuple[int, int]:
    """Row and column axis of an operand."""
    return (rank - 1, rank - 2) if transposed else (rank - 2, rank - 1)


def _check(gemm: Gemm) -> None:
    """UnsupportedError where no microkernel multiplies these operands."""
    place = place_of(gemm, "T.gemm")
    a, b, c = (str(region.buffer.dtype) for region in (gemm.a, gemm.b, gemm.c))
    known = _ACCUMULATORS.get(c, ())
    if a not in known or b not in known:
        raise UnsupportedError(
            f"no CPU product of {a} and {b} into {c}",
            place=place,
            remedy="accumulate floats in float32 and 8-bit integers in int32",
        )
    if may_overlap(gemm.c, gemm.a) or may_overlap(gemm.c, gemm.b):
        raise UnsupportedError(
            f"the product into {gemm.c.buffer.name} reads what it writes",
            place=place,
            remedy="accumulate in a tile of its own, then T.copy it",
        )
    if any(int_value(extent) is None for region in (gemm.a, gemm.b, gemm.c) for extent in region.extent):
        raise UnsupportedError(
            "T.gemm needs build-time extents", place=place, remedy="slice tiles by constant sizes"
        )
