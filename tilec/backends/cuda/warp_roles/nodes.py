"""What launches have in common whose warps have roles: the roles, tensor maps, loads, epilogues.

TmaLoad   = a tile of a tensor -> shared memory, by TMA
TileStore = accumulator -> arithmetic -> staging buffer -> TMA, or -> global memory
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.ir.exprs import int_value
from tilec.ir.roads import Loss
from tilec.ir.stmt import Aside, Block, Defines, Region, Stmt, Writes
from tilec.targets import registers_of_a_thread

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.stmt import Buffer


@dataclass(frozen=True)
class Window:
    """The pixels of an image that the first tap of a filter meets, per axis between the batch and the
    channels, outermost first: every ``steps``-th one from ``lower`` on (negative where there is padding) up
    to the last one of the axis plus ``upper``."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class TensorMap:
    """How TMA sees a global buffer: ``box`` elements per axis move at once; ``swizzle`` is the width in bytes
    of the XOR pattern of their shared image, 0 for none. With a ``window`` the map is one of im2col, and the
    box is pixels by channels. ``rest``: 0, or the rows of tiles of one box or more, whose boxes have equal
    shares of the rows that the tensor has beyond whole tiles, if any. ``inside``: the extents of what it sees
    of the buffer from its start on, outside of which are zeros; () for all of it."""

    syntax = "tensor_map(buffer, box=, swizzle=, window=, rest=, inside=)"

    buffer: Buffer
    box: tuple[int, ...]
    swizzle: int
    window: Window | None = None
    rest: int = 0
    inside: tuple[Expr, ...] = ()


def same_map(one: TensorMap, other: TensorMap) -> bool:
    """Whether two maps of tiles, no windows, are the same."""
    return one.buffer.same_as(other.buffer) and (one.box, one.swizzle, one.rest) == (
        other.box,
        other.swizzle,
        other.rest,
    )


#: Threads of a warpgroup.
WARPGROUP = 128
#: Warpgroups that take turns at tiles of their own.
TAKE_TURNS = 2
#: Registers of a producer and a consumer thread by the number of consumer warpgroups and of blocks that share
#: a multiprocessor: setmaxnreg hands out what the block got at launch. Others have enough without it.
HANDED_ON = {(2, 1): (40, 232), (3, 1): (32, 160), (1, 2): (40, 216), (2, 2): (24, 104)}
#: A thread has a multiple of so many registers.
REGISTER_UNIT = 8
#: Registers that a thread of a warpgroup takes at most.
MOST_REGISTERS = 232


def shared_out(registers: int, groups: int) -> int:
    """What each thread of ``groups`` warpgroups gets at launch, for so many of one of each together."""
    return -(-registers // (groups * REGISTER_UNIT)) * REGISTER_UNIT


@dataclass(frozen=True)
class Roles:
    """``consumers`` warpgroups compute, one more moves data; ``registers`` are those of a producer and of a
    consumer thread after setmaxnreg, None where all keep what they have at launch. ``pingpong``: consumers
    take tiles of their own, and their products take turns; else they share the rows of one tile.
    ``loaders``: warps that move data."""

    consumers: int
    registers: tuple[int, int] | None
    pingpong: bool = False
    loaders: int = 4

    @property
    def sharers(self) -> int:
        """Warpgroups that share a tile."""
        return 1 if self.pingpong else self.consumers

    @property
    def threads(self) -> int:
        """Threads of the block."""
        return WARPGROUP * self.consumers + 32 * self.loaders

    @property
    def consumer_registers(self) -> int:
        """Registers of a consumer thread, at most."""
        if self.registers is not None:
            return self.registers[1]
        return min(MOST_REGISTERS, registers_of_a_thread(self.threads))

    @property
    def entry_registers(self) -> int:
        """Registers that each thread must have at launch: setmaxnreg waits for ever for more than the block
        got. 0 where nothing is redistributed."""
        if self.registers is None:
            return 0
        producer, consumer = self.registers
        return shared_out(producer + consumer * self.consumers, self.consumers + 1)


@dataclass(frozen=True)
class Ring:
    """``stages`` slots of ``bytes`` each, with one full and one empty barrier per slot; the phases run on
    from one tile to the next."""

    stages: int
    bytes: int


@dataclass(frozen=True, eq=False)
class TmaLoad(Stmt):
    """``dst`` (one version of a tile) = the map's buffer from ``start`` on; zeros outside of it. Boxes follow
    one another along the last axis of the tile. ``shared``: both blocks of a cluster want the same, so that
    each brings half of the rows to both. ``crosses``: the map is that of half of the rows, and in pairs that
    cross the others it is the other way round (`tilec.backends.cuda.matmul.nodes.TileOrder`). ``evict``:
    "first" or "last" to leave the L2. ``offsets``: those of a tap, where the map has a window. ``early``: no
    launch in flight writes the tensor. ``tail``: the map for the last tile, which ends beyond the tensor: its
    boxes share the rows inside, and the rows of ``dst`` behind them hold anything; ``map`` itself where there
    is no other tile. ``parts``: maps one of which, by the number ``part``, boxes are taken of in place of
    ``map``."""

    map: TensorMap
    start: tuple[Expr, ...]
    dst: Writes[Region]
    shared: bool = False
    evict: str | None = None
    offsets: tuple[Expr, ...] = ()
    crosses: bool = False
    early: bool = False
    tail: TensorMap | None = None
    parts: tuple[TensorMap, ...] = ()
    part: Expr | None = None

    @property
    def rows(self) -> int:
        """Rows of the tile."""
        return int_value(self.dst.extent[-2]) or 1

    @property
    def boxes(self) -> int:
        """Boxes that the rows come in."""
        return -(-self.rows // self.map.box[-2])

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        """What it may take boxes of."""
        if self.parts:
            return self.parts
        return (self.map,) if self.tail in (None, self.map) else (self.map, self.tail)


@dataclass(frozen=True, eq=False)
class WarpgroupTile:
    """One warpgroup's share of a product: ``rows`` instructions of 64 rows, each ``columns`` wide, ``steps``
    of 32 bytes along K per stage. ``types`` are those in the instruction's name."""

    rows: int
    columns: int
    steps: int
    types: str

    @property
    def registers(self) -> int:
        """Of a thread, for its sums."""
        return self.rows * self.columns // 2

    def shares(self, parts: int) -> int:
        """Into how many equal shares of whole eights of columns ``parts`` blocks of a cluster may divide a
        tile: one for each block, or fewer."""
        eights = self.columns // 8
        return max(count for count in range(1, parts + 1) if eights % count == 0)


@dataclass(frozen=True, eq=False)
class TileStore(Stmt):
    """For every (i, j) of the accumulator's tile: ``body`` (Store and Bind statements), in the registers of
    the thread that holds the element. ``rows`` are those of one warpgroup. ``columns`` is above 0 where the
    last store goes through ``buffers`` staging buffers of so many columns, and ``map`` is set where TMA takes
    them from there: threads store their rows else; ``turned`` where j runs along the rows of what is stored.
    ``parts``: shares of the columns, of which the first blocks of a cluster have one each; ``extents`` are
    those of a share. All of ``body`` may stand in one If: a tile whose last row meets the condition then goes
    through the staging buffers, another one element by element.
    ``residual``: boxes of a tensor that the body reads where it stores come through the staging buffers.
    ``loss``: why it goes plainly, where that can be changed."""

    syntax = "tile_store(*extents)"

    vars: Defines[tuple[Var, ...]]
    extents: tuple[int, ...]
    rows: int
    body: Block
    map: TensorMap | None = None
    columns: int = 0
    buffers: int = 0
    turned: bool = False
    residual: TensorMap | None = None
    parts: int = 1
    evict: str | None = None
    loss: Aside[Loss | None] = None

    @property
    def chunks(self) -> tuple[int, ...]:
        """The columns at which what passes through a buffer at once begins. The last chunk may overlap the
        one before it, and store the same again."""
        last = self.extents[1] - self.columns
        return tuple(min(first, last) for first in range(0, self.extents[1], self.columns))

    @property
    def staging_bytes(self) -> int:
        """Bytes of staging buffers for one warpgroup; elements have 16 bits."""
        return self.buffers * self.rows * self.columns * 2
