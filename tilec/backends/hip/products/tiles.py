"""How waves share a product, and the layouts of its fragments.

A layout knows warps of 32 lanes: the halves of a wave of 64 are the two neighbours of the lowest digit of the
warp's number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.fragments import accumulator_layout, operand_layout
from tilec.backends.cuda.analysis.products.mma import Matrices, dtypes, extents, warp_grid
from tilec.backends.cuda.nodes import ScaledWarpGemm, WarpGemm, WarpTile
from tilec.backends.hip.products.instructions import FORMS, SCALED, SIDE, SMALL_FORMS, Form, matrices
from tilec.backends.hip.products.scales import GROUP, SCALED_DEPTH, depth_of
from tilec.ir.exprs import int_value
from tilec.ir.layout import Digit, Layout
from tilec.ir.small_floats import numbers_of
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tilec.ir.nodes import Gemm, ScaledGemm
    from tilec.targets import Target


@dataclass(frozen=True)
class WaveTile(WarpTile):
    """As `WarpTile`, of waves: ``instruction`` is the name of a form, ``warps`` are rows and columns of
    waves, ``tiles`` of 16 by 16 sums."""

    syntax = "wave_tile(instruction, warps=, tiles=, steps=)"

    @property
    def form(self) -> Form:
        """Of its instruction."""
        return FORMS[self.instruction]


@dataclass(frozen=True, eq=False)
class WaveGemm(WarpGemm):
    """A Gemm by matrix instructions of waves."""

    syntax = "wave_mma(a, b, c, trans_a=, trans_b=, clear=, tile=)"

    tile: WaveTile


@dataclass(frozen=True, eq=False)
class ScaledWaveGemm(ScaledWarpGemm):
    """A ScaledGemm by matrix instructions of waves; ``tile.instruction`` is the form of ``a``."""

    syntax = "wave_mma_scaled(a, b, c, sfa, sfb, group=, trans_a=, trans_b=, clear=, tile=)"

    tile: WaveTile


@dataclass(frozen=True)
class WaveMatrices(Matrices):
    """MFMA and WMMA."""

    kind: str = "matrix cores"
    statement: type[WarpGemm] = WaveGemm
    scaled_statement: type[ScaledWarpGemm] = ScaledWaveGemm

    def has(self, types: tuple[str, str, str], target: Target) -> bool:
        """As `Matrices.has`."""
        return bool(matrices(target, types))

    def tile(self, gemm: Gemm, warps: int, target: Target) -> WarpTile | str:
        """As `Matrices.tile`."""
        types, sizes = dtypes(gemm), extents(gemm)
        found = [(FORMS[each.form], each.form) for each in matrices(target, types)]
        if not found:
            return f"{target.name} has no matrix instruction for {types[0]} and {types[1]} into {types[2]}"
        if sizes is None:
            return "its extents are run-time values"
        rows, columns, depth = sizes
        row_bytes = depth * element_bytes(types[0])
        form, name = next((each for each in found if row_bytes % each[0].step_bytes == 0), found[-1])
        if warps % form.warps:
            return f"{32 * warps} threads are no whole waves of {form.lanes}"
        steps, rest = divmod(row_bytes, form.step_bytes)
        if rest:
            return f"K = {depth} is no multiple of {form.step_bytes // element_bytes(types[0])}"
        return _shared_tile(name, rows, columns, steps, warps, gemm.policy)

    def scaled(self, gemm: ScaledGemm, warps: int) -> tuple[WarpTile, str]:
        """As `Matrices.scaled`."""
        rows, columns = (int_value(extent) or 0 for extent in gemm.c.extent[-2:])
        name = SMALL_FORMS[numbers_of(gemm.a)]
        tile = _shared_tile(name, rows, columns, depth_of(gemm) // SCALED_DEPTH, warps, gemm.policy)
        return tile, f"{SCALED.removeprefix('__builtin_amdgcn_')}, a scale of each {GROUP}"


def _shared_tile(name: str, rows: int, columns: int, steps: int, warps: int, policy: int) -> WaveTile:
    tiles = (-(-rows // SIDE), -(-columns // SIDE))
    grid = warp_grid(tiles, warps // FORMS[name].warps, policy, SIDE)
    return WaveTile(name, grid, (tiles[0] // grid[0], tiles[1] // grid[1]), steps)


def _halves(form: Form) -> tuple[Digit, ...]:
    """Which lanes, and warps of a wave, have the pieces behind one another."""
    return (Digit(2, SIDE, "lane"), *([Digit(2, 1, "warp")] if form.warps == 2 else []))


@accumulator_layout.register
def _sums(tile: WaveTile, slices: tuple[int, int] = (1, 1), across: int = 0) -> Layout:
    form, (rows, columns), (down, wide) = tile.form, tile.tiles, tile.warps
    count = rows * columns * form.run
    i = (
        Digit(SIDE, 1, "lane"),
        Digit(rows, columns * form.run, "reg"),
        Digit(down, wide * form.warps, "warp"),
        Digit(slices[0], count * slices[1], "reg"),
    )
    j = (
        Digit(form.run, 1, "reg"),
        *_halves(form),
        Digit(columns, form.run, "reg"),
        Digit(wide, form.warps, "warp"),
        Digit(slices[1], count, "reg"),
    )
    return Layout((i, j))


@operand_layout.register
def _operand(tile: WaveTile) -> Layout:
    """Of 16-bit elements."""
    form, rows, (down, wide) = tile.form, tile.tiles[0], tile.warps
    i = (
        Digit(SIDE, 1, "lane"),
        Digit(rows, tile.steps * form.held, "reg"),
        Digit(down, wide * form.warps, "warp"),
    )
    runs = tile.steps * form.held // form.run
    return Layout((i, (Digit(form.run, 1, "reg"), *_halves(form), Digit(runs, form.run, "reg"))))
