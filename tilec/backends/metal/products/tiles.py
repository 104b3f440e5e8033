"""How simdgroups share a product, and the layouts of its fragments.

A simdgroup matrix is 8 by 8. Lane l has two neighbouring columns of row l / 2 % 4 + 4 * (l / 16), the first
one 2 * (l % 2) + 4 * (l / 8 % 2): of operands and of sums alike, so that the sums of one product are the next
one's operand in the lanes that have them. Apple does not publish this; what is written for these GPUs relies
on it (MLX, steel/gemm/mma.h)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.fragments import accumulator_layout, operand_layout
from tilec.backends.cuda.analysis.products.mma import Matrices, dtypes, extents, warp_grid
from tilec.backends.cuda.nodes import WarpGemm, WarpTile
from tilec.ir.layout import Digit, Layout

if TYPE_CHECKING:
    from tilec.ir.nodes import Gemm
    from tilec.targets import Target

#: Rows and columns of a matrix; elements of it in a lane.
SIDE, ELEMENTS = 8, 2
_FLOAT = "float32"
#: Types of operands, both the same, with sums in float32. Those of bfloat16 are multiplied as float32.
OPERANDS = ("float16", "bfloat16", _FLOAT)
_ROW = (Digit(4, 2, "lane"), Digit(2, 16, "lane"))
_COLUMN = (Digit(ELEMENTS, 1, "reg"), Digit(2, 1, "lane"), Digit(2, 8, "lane"))


@dataclass(frozen=True)
class SimdTile(WarpTile):
    """As `WarpTile`, of simdgroups: ``tiles`` of 8 by 8 sums, ``steps`` of 8 along K."""

    syntax = "simd_tile(instruction, warps=, tiles=, steps=)"


@dataclass(frozen=True, eq=False)
class SimdGemm(WarpGemm):
    """A Gemm by simdgroup matrices."""

    syntax = "simd_mma(a, b, c, trans_a=, trans_b=, clear=, tile=)"

    tile: SimdTile


@dataclass(frozen=True)
class SimdMatrices(Matrices):
    """Those of simdgroups."""

    kind: str = "matrix cores"
    statement: type[WarpGemm] = SimdGemm

    def has(self, types: tuple[str, str, str], target: Target) -> bool:
        """As `Matrices.has`."""
        return types[0] in OPERANDS and types[0] == types[1] and types[2] == _FLOAT

    def tile(self, gemm: Gemm, warps: int, target: Target) -> WarpTile | str:
        """As `Matrices.tile`."""
        types, sizes = dtypes(gemm), extents(gemm)
        if not self.has(types, target):
            return f"{target.name} has no simdgroup matrix for {types[0]} and {types[1]} into {types[2]}"
        if sizes is None:
            return "its extents are run-time values"
        rows, columns, depth = sizes
        if depth % SIDE:
            return f"K = {depth} is no multiple of {SIDE}"
        tiles = (-(-rows // SIDE), -(-columns // SIDE))
        grid = warp_grid(tiles, warps, gemm.policy, SIDE)
        own = (tiles[0] // grid[0], tiles[1] // grid[1])
        return SimdTile("simdgroup", grid, own, depth // SIDE)


@accumulator_layout.register
def _sums(tile: SimdTile, slices: tuple[int, int] = (1, 1), across: int = 0) -> Layout:
    (rows, columns), (down, wide) = tile.tiles, tile.warps
    count = rows * columns * ELEMENTS
    i = (
        *_ROW,
        Digit(rows, columns * ELEMENTS, "reg"),
        Digit(down, wide, "warp"),
        Digit(slices[0], count * slices[1], "reg"),
    )
    j = (
        *_COLUMN,
        Digit(columns, ELEMENTS, "reg"),
        Digit(wide, 1, "warp"),
        Digit(slices[1], count, "reg"),
    )
    return Layout((i, j))


@operand_layout.register
def _operand(tile: SimdTile) -> Layout:
    """Of 16-bit elements."""
    rows, (down, wide) = tile.tiles[0], tile.warps
    i = (*_ROW, Digit(rows, tile.steps * ELEMENTS, "reg"), Digit(down, wide, "warp"))
    return Layout((i, (*_COLUMN, Digit(tile.steps, ELEMENTS, "reg"))))
