"""tcgen05: which products it takes, and how warpgroups share their sums.

PTX ISA, "TensorCore 5th Generation Family Instructions": an instruction of one block has 128 rows here, a
multiple of 16 columns up to 256 and 32 bytes of K. Operands lie in shared memory as wgmma's do, sums in
memory of 128 rows and 512 columns of 32 bits, which is handed out in powers of two from 32 on. There a first
operand of 16 bits may lie, too, two neighbours along K to a column.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.fragments import WARPS_OF_A_GROUP
from tilec.backends.cuda.analysis.layouts.tiles import is_whole
from tilec.backends.cuda.analysis.products.mma import COLUMNS, dtypes, extents, is_register_operand
from tilec.backends.cuda.analysis.products.wgmma import STEP_BYTES, is_operand
from tilec.backends.cuda.limits import has_tensor_integers
from tilec.backends.cuda.nodes import TensorTile
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tilec.ir.nodes import Gemm, Region
    from tilec.targets import Target

#: Rows of tensor memory, its columns, and the least that are handed out.
ROWS, MOST, LEAST = 128, 512, 32
#: Blocks that multiply as one, rows of their product, and what its columns are multiples of: half of them
#: come from each block.
PAIR, PAIRED_ROWS, PAIRED_COLUMNS = 2, 256, 32
#: Bytes of elements that may be stored across K.
_EITHER_SIDE = 2
_STEP_COLUMNS, _WIDEST, _ROWS_OF_A_WARP = 16, 256, 2
#: The kind of an instruction by the type of its operands, and the number that its descriptor has for each.
KINDS = {
    "float16": ("f16", 0),
    "bfloat16": ("f16", 1),
    "float32": ("tf32", 2),
    "float8_e4m3fn": ("f8f6f4", 0),
    "float8_e5m2": ("f8f6f4", 1),
    "uint8": ("i8", 0),
    "int8": ("i8", 1),
}
#: The type of sums by kind, and the number that descriptors have for it.
SUMS = {"f16": ("float32", 1), "tf32": ("float32", 1), "f8f6f4": ("float32", 1), "i8": ("int32", 2)}


def tensor_tile(gemm: Gemm, warps: int, target: Target) -> TensorTile | str:
    """How ``warps`` warps share the sums of a product, or the reason why tcgen05 cannot."""
    (a, b, c), sizes = dtypes(gemm), extents(gemm)
    kinds = {KINDS.get(dtype, (dtype,))[0] for dtype in (a, b)}
    is_known = len(kinds) == 1 and a in KINDS and (kinds != {"f16"} or a == b)
    if not is_known or c != SUMS[KINDS[a][0]][0]:
        return f"no form of tcgen05 here multiplies {a} and {b} into {c}"
    if kinds == {"i8"} and not has_tensor_integers(target):
        return f"tcgen05 of {target.name} has no integers"
    if sizes is None:
        return "its extents are run-time values"
    rows, columns, depth = sizes
    down, groups = rows // ROWS, warps // WARPS_OF_A_GROUP
    beside = groups // down if down else 0
    if rows % ROWS or down * beside != groups or columns % (_STEP_COLUMNS * beside) or columns > _WIDEST:
        return f"{groups} warpgroups cannot share {rows} x {columns} sums in tensor memory"
    if depth * element_bytes(a) % STEP_BYTES:
        return f"K = {depth} is no multiple of {STEP_BYTES // element_bytes(a)}"
    if is_held(gemm) and depth % (_STEP_COLUMNS * beside):
        return f"{groups} warpgroups cannot share K = {depth}"
    left = is_held(gemm) or _is_described(gemm.a, gemm.trans_a)
    if not left or not _is_described(gemm.b, not gemm.trans_b):
        return "its operands are no tiles that descriptors describe"
    if (gemm.trans_a or not gemm.trans_b) and element_bytes(a) != _EITHER_SIDE:
        return f"operands of {a} are stored across K"
    if not is_whole(gemm.c):
        return "its result is a part of a fragment"
    depth_of_step = STEP_BYTES // element_bytes(a)
    return TensorTile(
        f"m16n8k{depth_of_step}",
        (WARPS_OF_A_GROUP * down, beside),
        (_ROWS_OF_A_WARP, columns // beside // COLUMNS),
        depth // depth_of_step,
        columns=columns,
    )


def is_held(gemm: Gemm) -> bool:
    """Whether the first operand of a product is a fragment that may lie in tensor memory."""
    return is_register_operand(gemm, of_warpgroups=False)


def held_tile(tile: TensorTile) -> TensorTile:
    """How warps share the first operand of a product: its rows as those of the sums, all of K."""
    columns = tile.steps * int(tile.instruction.rpartition("k")[2])
    return replace(tile, tiles=(_ROWS_OF_A_WARP, columns // tile.warps[1] // COLUMNS), columns=columns)


def _is_described(region: Region, across: bool) -> bool:
    return region.buffer.scope() == "shared.dyn" and is_operand(region, across)


def taken_columns(tile: TensorTile, size: int = 4) -> int:
    """Columns of tensor memory that elements of ``size`` bytes take: of each 128 rows those of the tile."""
    return tile.warps[0] // WARPS_OF_A_GROUP * tile.columns * size // 4


def handed_out(columns: int) -> int:
    """Columns that a block has to ask for."""
    return max(LEAST, 1 << (columns - 1).bit_length())
