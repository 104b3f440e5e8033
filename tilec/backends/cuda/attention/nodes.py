"""Statements of launches whose rows stay in registers through several products.

AttentionRoles = a producer warp fills rings of tiles, consumer warpgroups own 64 rows of each fragment
RingPut        = wait for a free stage, announce its bytes, TmaLoad*
RingWait       = wait for the ring's next full stage; from here on ``Ring.stage`` is its number
RingRelease    = the stage may be filled again
AsyncProduct   = wgmma in the background; ProductsWait waits for the oldest of those under way
BoxStore       = a 16-bit fragment -> staging buffer -> TMA
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.backends.cuda.nodes import ThreadLoop, WarpGemm
from tilec.backends.cuda.warp_roles.nodes import Roles, TensorMap
from tilec.ir.nodes import Bind, For
from tilec.ir.stmt import Block, Defines, Named, Region, Scratch, Stmt, Updates, Writes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.stmt import Buffer


@dataclass(frozen=True, eq=False)
class TileRing:
    """``stages`` versions of ``source`` in ``tile``, each with ``bytes`` and a full and an empty barrier.
    ``stage`` is the number of the version at hand in the role that reads it."""

    tile: Buffer
    source: Defines[Buffer]
    stages: int
    bytes: int
    stage: Defines[Var]


@dataclass(frozen=True, eq=False)
class AttentionOrder:
    """How persistent blocks take tiles. ``longest``: the grid axis along which work grows, so that tiles are
    handed out one by one from ``counter``, longest first, in sections of ``section`` positions of the other
    axes; None: in order of the grid, one by one where there is a counter, else every gridDim-th tile. Up to
    ``few`` tiles are left to every gridDim-th block, and no launch clears the counter for them.
    ``shared``: the axis along which neighbours share a tile that no others do, so that they go side by side,
    in such sections, too."""

    longest: int | None = None
    section: Expr | int = 1
    counter: Updates[Buffer | None] = None
    few: int = 0
    shared: int | None = None

    @property
    def has_sections(self) -> bool:
        """Whether tiles go in sections of positions."""
        return self.longest is not None or self.shared is not None


@dataclass(frozen=True, eq=False)
class AttentionRoles(Stmt):
    """The body of a launch whose warps have roles. All blocks run once per tile: ``producer`` by one thread,
    ``turner`` by the warps beside its own, if there is something to turn. ``turns``: the consumer
    warpgroups issue their products one after the other. ``alone``: a warpgroup has one product under way at
    a time, as the next one's results take the registers of its operand. ``together``: blocks that share a
    multiprocessor."""

    roles: Roles
    order: AttentionOrder
    rings: tuple[TileRing, ...]
    producer: Block
    consumer: Block
    turns: bool = False
    alone: bool = False
    together: int = 1
    turner: Block = ()


@dataclass(frozen=True, eq=False)
class RingPut(Stmt):
    """The loads of ``body`` go to the next free stage of a ring."""

    ring: Named[TileRing]
    body: Block


@dataclass(frozen=True, eq=False)
class RingWait(Stmt):
    """Waits for the next full stage."""

    ring: Named[TileRing]


@dataclass(frozen=True, eq=False)
class RingRelease(Stmt):
    """This warpgroup is done with the stage at hand; the ring moves on. ``stored``: results that it holds are
    read by stores first. ``meets``: its warps meet first, as without a product since the wait for the stage
    one of them may still be waiting."""

    ring: Named[TileRing]
    stored: bool = False
    meets: bool = False


@dataclass(frozen=True, eq=False)
class RingTurn(Stmt):
    """The stage at hand of ``source`` goes with its axes exchanged to the next free stage of ``ring``, an
    8-bit operand along K. Of 16 of K those that a lane has of two groups of eight columns of sums follow each
    other: 0, 1, 8, 9, 2, 3, 10, 11 and so on."""

    source: Named[TileRing]
    ring: Named[TileRing]


@dataclass(frozen=True, eq=False)
class AsyncProduct(WarpGemm):
    """A product by wgmma, issued and not waited for. ``tile`` says where elements lie, as for mma.sync: the
    registers are the same; ``types`` are those in the instruction's name. ``turned``: B is the outcome of a
    RingTurn."""

    syntax = "async_product(a, b, c, trans_a=, trans_b=, clear=, tile=, types=, turned=)"

    types: str = ""
    turned: bool = False

    @property
    def columns(self) -> int:
        """Columns of one instruction."""
        return self.tile.tiles[1] * 8


@dataclass(frozen=True, eq=False)
class ProductsWait(Stmt):
    """Waits until at most ``pending`` products are under way; ``sums`` are the accumulators that are complete
    from here on."""

    syntax = "products_wait(pending, *sums)"

    pending: int
    sums: Updates[tuple[Region, ...]]


@dataclass(frozen=True, eq=False)
class Turn(Stmt):
    """``begin``: waits until the warpgroup before has issued its products; else hands on to the next one."""

    syntax = "turn(begin=!)"

    begin: bool


@dataclass(frozen=True, eq=False)
class ZeroRows(Stmt):
    """Rows of a shared tile become 0 unless the condition that ``body`` binds for ``row`` holds. It holds up
    to some row, and from there on it does not."""

    tile: Writes[Region]
    row: Defines[Var]
    body: tuple[Bind]

    @property
    def keep(self) -> Expr:
        """The condition."""
        return self.body[0].value


@dataclass(frozen=True, eq=False)
class RowMask(Stmt):
    """Elements (row, column) of a fragment from the column on that ``body`` binds for ``row`` become
    ``other``, and those in front of the second one that it binds, if there is one."""

    tile: Writes[Region]
    row: Defines[Var]
    body: tuple[Bind, ...]
    other: Expr

    @property
    def limit(self) -> Expr:
        """The first column behind those that stay."""
        return self.body[0].value

    @property
    def begin(self) -> Expr | None:
        """The first column that stays; None where that is the first one of the fragment."""
        return self.body[1].value if len(self.body) > 1 else None


@dataclass(frozen=True, eq=False)
class Vote(Stmt):
    """``flag`` of one element becomes other than 0 where what ``body`` binds is true for a value of ``var``
    below ``extent``. The lanes of a warp share the values, and all learn it."""

    flag: Writes[Buffer]
    var: Defines[Var]
    extent: int
    body: tuple[Bind]

    @property
    def tested(self) -> Expr:
        """The condition."""
        return self.body[0].value


@dataclass(frozen=True, eq=False)
class BoxStore(Stmt):
    """A fragment of 16-bit elements goes to the box of the map's buffer at ``start``, through staging memory
    ``staging`` (all warpgroups' rows below each other), which may be the tile of a ring: the stage at hand.
    Elements outside of the buffer are dropped. ``evict``: "first" or "last" to leave the L2 cache."""

    src: Region
    map: Writes[TensorMap]
    start: tuple[Expr, ...]
    staging: Scratch[Buffer]
    evict: str | None = None


@dataclass(frozen=True, eq=False)
class PairLoop(ThreadLoop):
    """A ThreadLoop of one Store to a fragment that is held as words: two neighbours of a row are converted
    and packed at once."""

    syntax = "thread_pairs(*extents, layout=, vector=)"


@dataclass(frozen=True, eq=False)
class TripLoop(For):
    """The loop over trips, which is not unrolled: products keep their registers, and waits their place."""


@dataclass(frozen=True, eq=False)
class LaunchDependents(Stmt):
    """From here on the next launch may begin, if it is programmatic."""
