"""Products of warps and warpgroups, with operands in shared memory or registers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilec.ir.stmt import Block, Region, Stmt, Updates, Writes

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.ir.stmt import Buffer


@dataclass(frozen=True)
class WarpTile:
    """How warps share one product and what each issues.

    ``instruction`` is mma.sync's shape ("m16n8k16") or wgmma's ("m64n128k16"); ``warps`` rows and columns of
    warps, ``tiles`` rows of instructions and columns of eight elements that one warp has per step along K,
    ``steps`` the steps of one product. By wgmma the warps of a warpgroup have 16 rows each of an
    instruction's 64, and rows of instructions follow each other in steps of 64; by mma.sync a warp's rows lie
    together. ``paired``: the two rows that a lane has of an instruction of wgmma are neighbours."""

    syntax = "warp_tile(instruction, warps=, tiles=, steps=, paired=)"

    instruction: str
    warps: tuple[int, int]
    tiles: tuple[int, int]
    steps: int
    paired: bool = False

    @property
    def of_warpgroups(self) -> bool:
        """Whether a warpgroup issues an instruction together."""
        return self.instruction.startswith("m64")


@dataclass(frozen=True, eq=False)
class WarpGemm(Stmt):
    """A Gemm on tensor cores: ``a`` in shared memory or in a fragment, ``b`` in shared memory, ``c`` in a
    fragment. Fields as in `tilec.ir.nodes.Gemm`."""

    syntax = "mma(a, b, c, trans_a=, trans_b=, clear=, tile=)"

    a: Region
    b: Region
    c: Updates[Region]
    trans_a: bool
    trans_b: bool
    clear: Expr
    tile: WarpTile


@dataclass(frozen=True, eq=False)
class SparseWarpGemm(WarpGemm):
    """A WarpGemm by mma.sp: ``a`` holds two values of each group of four along K, in shared memory, ``e`` in
    shared memory where they are (`tilec.ir.nodes.SparseGemm`). ``tile.steps`` are those of ``a``."""

    syntax = "mma_sp(a, e, b, c, trans_a=, trans_e=, trans_b=, clear=, tile=)"

    e: Region
    trans_e: bool


@dataclass(frozen=True, eq=False)
class ScaledWarpGemm(WarpGemm):
    """A WarpGemm by mma.sync with ``block_scale``: ``sfa`` and ``sfb`` hold the scales, in shared memory, one
    for ``group`` numbers along K (`tilec.ir.nodes.ScaledGemm`)."""

    syntax = "mma_scaled(a, b, c, sfa, sfb, group=, trans_a=, trans_b=, clear=, tile=)"

    sfa: Region
    sfb: Region
    group: int


@dataclass(frozen=True, eq=False)
class FirstOperands(WarpGemm):
    """Loads what the first step of a product multiplies into ``registers`` (a name), where ``more`` holds.
    The product itself is a `RotatedGemm` in the loop behind."""

    syntax = "first_operands(a, b, c, trans_a=, trans_b=, clear=, tile=)"

    more: Expr
    registers: str


@dataclass(frozen=True, eq=False)
class RotatedGemm(WarpGemm):
    """A WarpGemm that finds the operands of its first step in ``registers`` and leaves those of the next trip
    there: before its last step it waits for all but ``pending`` groups of copies and for all threads, then
    loads from ``next_a`` and ``next_b`` where ``more`` holds."""

    syntax = "rotated_mma(a, b, c, trans_a=, trans_b=, clear=, tile=)"

    next_a: Region
    next_b: Region
    more: Expr
    pending: int
    registers: str


@dataclass(frozen=True, eq=False)
class WarpgroupProduct(WarpGemm):
    """A WarpGemm by wgmma, which runs in the background until a `ProductsWait` covers it: ``a`` in shared
    memory or, of 16 bits, in a fragment. ``types`` are those in the instruction's name. ``registers``: what
    `BringOperand` has loaded of ``a``, of 8 or 32 bits across K, under this name."""

    syntax = "wgmma(a, b, c, trans_a=, trans_b=, clear=, tile=, types=, registers=)"

    types: str
    registers: str | None = None

    @property
    def width(self) -> int:
        """Columns of one instruction."""
        return int(self.tile.instruction[len("m64n") :].partition("k")[0])


@dataclass(frozen=True, eq=False)
class SparseWarpgroupProduct(WarpgroupProduct):
    """A WarpgroupProduct by wgmma.sp: ``a`` holds two values of each group of four along K, ``e`` where they
    are, in shared memory (`tilec.ir.nodes.SparseGemm`). ``tile.steps`` are those of ``a``. ``registers``:
    what `BringPlaces` has loaded of ``e``, under this name."""

    syntax = "wgmma_sp(a, e, b, c, trans_a=, trans_e=, trans_b=, clear=, tile=, types=, registers=)"

    e: Region = field(kw_only=True)
    trans_e: bool = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class BringOperand(Stmt):
    """Lanes load into ``registers`` (a name) what a `WarpgroupProduct` of ``tile`` takes of ``a``, a shared
    tile of 8 or 32 bits across K."""

    syntax = "bring_operand(a, tile=, registers=)"

    a: Region
    tile: WarpTile
    registers: str


@dataclass(frozen=True, eq=False)
class BringPlaces(Stmt):
    """Lanes load into ``registers`` (a name) what a `SparseWarpgroupProduct` of ``tile`` wants of ``e``, the
    places of its values."""

    syntax = "bring_places(e, trans_e=, tile=, registers=)"

    e: Region
    trans_e: bool
    tile: WarpTile
    registers: str


@dataclass(frozen=True, eq=False)
class TurnTile(Stmt):
    """``dst[j, i] = src[i, j]`` for elements of 8 or 32 bits in shared memory: an operand that is stored
    across K, for wgmma, which takes it along K alone. ``dst`` is a whole tile, or a version of one, of whole
    units (`tilec.backends.cuda.analysis.products.turn_operands.UNITS`)."""

    src: Region
    dst: Writes[Region]


@dataclass(frozen=True, eq=False)
class SideBySide(Stmt):
    """Products by wgmma of one first operand and of matrices that lie one behind the other in a tile, or in a
    ring's stages, each with sums of its own, as one product of all columns."""

    syntax = "side_by_side()"

    body: Block


@dataclass(frozen=True, eq=False)
class ProductsWait(Stmt):
    """Waits until at most ``pending`` products of this warpgroup are under way; ``sums`` are the accumulators
    that are complete from here on, ``tiles`` what those products have read until now."""

    syntax = "wgmma_wait(pending, *tiles, sums=)"

    pending: int
    tiles: tuple[Buffer, ...]
    sums: Updates[tuple[Region, ...]]
