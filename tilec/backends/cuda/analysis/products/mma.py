"""mma.sync: which products it takes, and how warps share a tile.

Every instruction used here has M = 16, N = 8 and 32 bytes of each operand along K: m16n8k16 for 16-bit types,
m16n8k8 for float32 rounded to TF32, m16n8k32 for 8-bit integers and, from sm_89 on, 8-bit floats, m16n8k4
for float64, of which GPUs before sm_90 have one half, m8n8k4 (PTX ISA, "Warp-level Matrix Instructions"). Of
4-bit floats with scales 32 bytes are 64 numbers (m16n8k64).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.tiles import is_slice, is_whole
from tilec.backends.cuda.limits import (
    has_float8,
    has_scaled_products,
    has_tensor_cores,
    has_whole_doubles,
)
from tilec.backends.cuda.nodes import ScaledWarpGemm, WarpGemm, WarpTile
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Gemm, ScaledGemm, SparseGemm, Unscaled
from tilec.ir.roads import Loss
from tilec.ir.small_floats import number_type, numbers_of, scale_type
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tilec.targets import Target

ROWS, COLUMNS, STEP_BYTES = 16, 8, 32

#: (a, b, c) to the types in the instruction's name, in PTX's order c, a, b.
_TYPES = {
    ("float16", "float16", "float32"): "f32.f16.f16.f32",
    ("bfloat16", "bfloat16", "float32"): "f32.bf16.bf16.f32",
    ("float32", "float32", "float32"): "f32.tf32.tf32.f32",
    ("float64", "float64", "float64"): "f64.f64.f64.f64",
    **{
        (a, b, "int32"): f"s32.{short[a]}.{short[b]}.s32"
        for short in ({"int8": "s8", "uint8": "u8"},)
        for a in short
        for b in short
    },
    **{
        (a, b, "float32"): f"f32.{short[a]}.{short[b]}.f32"
        for short in ({"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"},)
        for a in short
        for b in short
    },
}


#: As `_TYPES`, of mma.sp: 16-bit and 8-bit types in groups of four.
_SPARSE_TYPES = {types: name for types, name in _TYPES.items() if types[0] not in ("float32", "float64")}


#: PTX's names of numbers and scales.
_NUMBERS = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "float4_e2m1fn": "e2m1"}
_SCALES = {"float8_e8m0fnu": "ue8m0", "float8_e4m3fn": "ue4m3"}
#: Kinds of mma.sync with scales: bits of a number, type of scales, numbers that share one -> the kind and how
#: many scales an instruction has for each row and column (PTX ISA, "Block Scaling for mma.sync"; ue8m0 for
#: each 16 is of PTX 9.1, which NVRTC 12.9 does not have).
_SCALED = {
    (8, "ue8m0", 32): ("mxf8f6f4", 1),
    (4, "ue8m0", 32): ("mxf4", 2),
    (4, "ue4m3", 16): ("mxf4nvf4", 4),
}
_FIT_SCALES = (
    "multiply 8-bit floats with float8_e8m0fnu for each 32, or float4_e2m1fn stored along K with"
    " float8_e8m0fnu for each 32 or float8_e4m3fn for each 16, K a multiple of 32 bytes"
)


def has_instruction(types: tuple[str, str, str], target: Target) -> bool:
    """Whether ``target`` multiplies operands of these types (a, b, c) as they are."""
    has = has_float8 if types[0].startswith("float8") else has_tensor_cores
    return types in _TYPES and has(target)


@dataclass(frozen=True)
class Matrices:
    """The instructions by which warps of a family of GPUs multiply tiles, where nothing else does: here those
    of mma.sync. ``kind`` names them in roads, ``statement`` is the product that they carry out,
    ``scaled_statement`` the one with scales."""

    kind: str = "mma.sync"
    statement: type[WarpGemm] = WarpGemm
    scaled_statement: type[ScaledWarpGemm] = ScaledWarpGemm

    def has(self, types: tuple[str, str, str], target: Target) -> bool:
        """Whether ``target`` multiplies operands of these types (a, b, c) as they are."""
        return has_instruction(types, target)

    def tile(self, gemm: Gemm, warps: int, target: Target) -> WarpTile | str:
        """How warps compute a product, or the reason why they cannot by these instructions."""
        return warp_tile(gemm, warps, target)

    def scaled(self, gemm: ScaledGemm, warps: int) -> tuple[WarpTile, str]:
        """How warps compute a product with scales that `ExpandScaled` has left to the target, and by which
        instruction."""
        kind, scales = scaled_kind(gemm)
        tile = scaled_tile(gemm, warps)
        return tile, f"{tile.instruction} {kind}, {scales} scales a row"


MMA = Matrices()
#: Policies of a product: a share as square as can be, and whole rows for each warp.
SQUARE, WHOLE_ROWS = 0, 1


def dtypes(gemm: Unscaled | WarpGemm) -> tuple[str, str, str]:
    """The element types of the three operands."""
    a, b, c = (str(region.buffer.dtype) for region in (gemm.a, gemm.b, gemm.c))
    return a, b, c


def is_register_operand(gemm: Unscaled, of_warpgroups: bool) -> bool:
    """Whether a fragment serves as the A operand: whole, rows along M, of 16 bits where mma.sync reads it."""
    return (
        gemm.a.buffer.scope() == "local.fragment"
        and is_whole(gemm.a)
        and not gemm.trans_a
        and (of_warpgroups or element_bytes(dtypes(gemm)[0]) == 2)
    )


def instruction_name(shape: str, types: tuple[str, str, str]) -> str:
    """The PTX instruction: "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"."""
    return f"mma.sync.aligned.{shape}.row.col.{_TYPES[types]}"


def word_bytes(dtype: str) -> int:
    """Bytes of a register of an operand: 4, of which float64 takes two."""
    return max(4, element_bytes(dtype))


def sparse_instruction_name(shape: str, types: tuple[str, str, str]) -> str:
    """The PTX instruction: "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"."""
    return f"mma.sp::ordered_metadata.sync.aligned.{shape}.row.col.{_SPARSE_TYPES[types]}"


def scaled_kind(gemm: ScaledGemm | ScaledWarpGemm) -> tuple[str, int]:
    """The kind of the instruction with scales, and how many it takes for each row and column."""
    return _SCALED[_form(gemm)]


def scaled_instruction_name(shape: str, gemm: ScaledGemm | ScaledWarpGemm) -> str:
    """The PTX instruction: "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32
    .e4m3.e4m3.f32.ue8m0", in one word."""
    kind, scales = scaled_kind(gemm)
    a, b = (_NUMBERS[number_type(region)] for region in (gemm.a, gemm.b))
    how = f"kind::{kind}.block_scale.scale_vec::{scales}X"
    return f"mma.sync.aligned.{shape}.row.col.{how}.f32.{a}.{b}.f32.{_SCALES[scale_type(gemm.sfa)]}"


def _form(gemm: ScaledGemm | ScaledWarpGemm) -> tuple[int, str, int]:
    """The key of `_SCALED`."""
    return 8 // numbers_of(gemm.a), _SCALES[scale_type(gemm.sfa)], gemm.group


def extents(gemm: Unscaled) -> tuple[int, int, int] | None:
    """M, N and the K of the first operand, half of it where that is sparse; None where one is a run-time
    value."""
    rows, columns = gemm.c.extent[-2:]
    depth = gemm.a.extent[-2 if gemm.trans_a else -1]
    found = (int_value(rows), int_value(columns), int_value(depth))
    return None if None in found else found  # type: ignore[return-value]


def warp_tile(gemm: Gemm, warps: int, target: Target) -> WarpTile | str:
    """How ``warps`` warps compute a product, or the reason why tensor cores cannot."""
    types, sizes = dtypes(gemm), extents(gemm)
    if not has_instruction(types, target):
        return f"{target.name} has no tensor-core product of {types[0]} and {types[1]} into {types[2]}"
    if sizes is None:
        return "its extents are run-time values"
    rows, columns, depth = sizes
    step = STEP_BYTES // element_bytes(types[0])
    if depth % step:
        return f"K = {depth} is no multiple of {step}"
    high = ROWS if types[0] != "float64" or has_whole_doubles(target) else ROWS // 2
    return _shared_tile(rows, columns, f"m{high}n8k{step}", depth // step, warps, gemm.policy)


def sparse_tile(gemm: SparseGemm, warps: int, target: Target) -> WarpTile | str:
    """How ``warps`` warps compute a sparse product, or the reason why mma.sp cannot. Its instructions have
    32 bytes of the values along K, so twice as many of B (PTX ISA, "Sparse matrix storage")."""
    types = dtypes(gemm)
    if types not in _SPARSE_TYPES or not has_instruction(types, target):
        return f"{target.name} has no mma.sp of {types[0]} and {types[1]} into {types[2]}"
    rows, columns = (int_value(extent) or 0 for extent in gemm.c.extent[-2:])
    held = int_value(gemm.a.extent[-2 if gemm.trans_a else -1]) or 0
    step = STEP_BYTES // element_bytes(types[0])
    if held % step:
        return f"K = {2 * held} is no multiple of {2 * step}"
    return _shared_tile(rows, columns, f"m16n8k{2 * step}", held // step, warps, gemm.policy)


def scaled_loss(gemm: ScaledGemm, target: Target, threads: int) -> Loss | str | None:
    """Why no mma.sync with scales carries a product out: a text where the target has none at all."""
    if not has_scaled_products(target):
        return f"{target.name} has no mma.sync with scales"
    a, b = (number_type(region) for region in (gemm.a, gemm.b))
    depth = int_value(gemm.a.extent[-2 if gemm.trans_a else -1]) or 0
    if numbers_of(gemm.a) != numbers_of(gemm.b) or _form(gemm) not in _SCALED:
        scales = scale_type(gemm.sfa)
        why = f"there is none of {a} and {b} with {scales} for each {gemm.group}"
    elif numbers_of(gemm.a) == 2 and (gemm.trans_a or not gemm.trans_b):
        why = f"it takes {a} stored along K alone"
    elif depth % STEP_BYTES:
        why = f"K has {depth} bytes, no multiple of {STEP_BYTES}"
    elif not is_slice(gemm.c) and gemm.c.buffer.scope() == "local.fragment":
        why = "its result is no equal slice of a fragment"
    else:
        return None
    return Loss("", f"no mma.sync with scales: {why}", _FIT_SCALES)


def scaled_tile(gemm: ScaledGemm, warps: int) -> WarpTile:
    """How ``warps`` warps compute a product that `scaled_loss` has nothing against."""
    rows, columns = (int_value(extent) or 0 for extent in gemm.c.extent[-2:])
    depth = int_value(gemm.a.extent[-2 if gemm.trans_a else -1]) or 0
    shape = f"m16n8k{STEP_BYTES * numbers_of(gemm.a)}"
    return _shared_tile(rows, columns, shape, depth // STEP_BYTES, warps, gemm.policy)


def _shared_tile(rows: int, columns: int, shape: str, steps: int, warps: int, policy: int) -> WarpTile:
    tiles = (-(-rows // ROWS), -(-columns // COLUMNS))
    grid = warp_grid(tiles, warps, policy)
    return WarpTile(shape, grid, (tiles[0] // grid[0], tiles[1] // grid[1]), steps)


def warp_grid(tiles: tuple[int, int], warps: int, policy: int, columns: int = COLUMNS) -> tuple[int, int]:
    """Rows and columns of warps for a tile of so many instructions of ``columns`` columns each: as many as
    divide it, then as square a share as can be.

    Policies 1 and 2 give as many warps as can be rows (columns) of their own, the rest parts of them. Warps
    beyond the grid repeat its work."""
    choices = [
        (down, across)
        for down in range(1, warps + 1)
        for across in range(1, warps // down + 1)
        if warps % (down * across) == 0 and tiles[0] % down == 0 and tiles[1] % across == 0
    ]
    wanted = {1: 0, 2: 1}.get(policy)

    def cost(grid: tuple[int, int]) -> tuple[int, int, int, int]:
        down, across = grid
        share = (tiles[0] // down * ROWS, tiles[1] // across * columns)
        apart = 0 if wanted is None else -grid[wanted]
        return apart, -down * across, share[0] + share[1], share[1] // columns % 2

    return min(choices, key=cost)
