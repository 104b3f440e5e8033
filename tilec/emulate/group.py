"""Groups of warps that run the same statements at once, what they run, and the blocks they belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec.emulate.state.clocks import Agents, Clocks, Hazard
from tilec.emulate.state.memory import SHARED_BASE, Memory
from tilec.emulate.state.numbers import TYPES, is_float
from tilec.emulate.state.races import Access
from tilec.emulate.state.registers import Registers, Taint

WARP = 32
#: Bits of a cluster address below the block's rank.
_RANK_SHIFT = 24


@dataclass(eq=False)
class Cluster:
    """The blocks that run together: their clocks, the warps that have ended, what they wait with."""

    number: int
    clocks: Clocks
    blocks: list[Block] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)
    barriers: dict[object, Any] = field(default_factory=dict)

    @property
    def agents(self) -> Agents:
        """Who acts in this cluster."""
        return self.clocks.agents


@dataclass(eq=False)
class Block:
    """A thread block: its place in the grid, its rank in the cluster, its shared memory.

    ``first_warp`` is the number of its first warp in the cluster; ``registers`` are those of a thread at
    launch, 0 where it does not matter."""

    cluster: Cluster
    index: tuple[int, int, int]
    grid: tuple[int, int, int]
    threads: tuple[int, int, int]
    rank: int
    first_warp: int
    shared: Memory
    registers: int = 0
    state: dict[object, Any] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Threads of the block."""
        return self.threads[0] * self.threads[1] * self.threads[2]

    @property
    def warps(self) -> int:
        """Warps of the block."""
        return -(-self.count // WARP)

    @property
    def has_ended(self) -> bool:
        """Whether all of its warps have ended."""
        return set(range(self.first_warp, self.first_warp + self.warps)) <= self.cluster.ended

    def window(self, address: Any, mask: np.ndarray | None = None) -> tuple[Memory, Any]:
        """The shared memory that addresses of the shared window mean, and the offsets in it. ``mask``: the
        lanes whose addresses count, None for all."""
        low: Any
        if isinstance(address, np.ndarray):
            ranks = np.unique((address if mask is None else address[mask]) >> _RANK_SHIFT)
            if len(ranks) > 1:
                raise Hazard("one access goes to the shared memory of several blocks")
            rank, low = int(ranks[0]) if len(ranks) else 0, (address & 0xFFFFFF).astype(np.int64)
        else:
            rank, low = int(address) >> _RANK_SHIFT, int(address) & 0xFFFFFF
        if rank == 0:
            return self.shared, low - SHARED_BASE
        if rank > len(self.cluster.blocks):
            raise Hazard(f"shared memory of block {rank - 1} of a cluster of {len(self.cluster.blocks)}")
        block = self.cluster.blocks[rank - 1]
        if block.has_ended:
            raise Hazard(
                f"shared memory of block {rank - 1} of the cluster is used after that block has ended",
                remedy="a barrier of the cluster is missing at the end",
            )
        return block.shared, low - SHARED_BASE

    @staticmethod
    def by_block(address: Any, mask: np.ndarray | None) -> list[np.ndarray | None]:
        """The lanes of ``mask``, apart by the block of the cluster whose shared memory addresses mean."""
        if not isinstance(address, np.ndarray):
            return [mask]
        ranks = address >> _RANK_SHIFT
        found = np.unique(ranks if mask is None else ranks[mask])
        if len(found) < 2:
            return [mask]
        return [(ranks == rank) if mask is None else (ranks == rank) & mask for rank in found]

    @staticmethod
    def mapped(address: Any, rank: Any) -> Any:
        """The cluster address of another block's shared memory."""
        if isinstance(address, np.ndarray) or isinstance(rank, np.ndarray):
            low = np.asarray(address, np.uint32) & np.uint32(0xFFFFFF)
            high = (np.asarray(rank).astype(np.uint32) + np.uint32(1)) << np.uint32(_RANK_SHIFT)
            return low | high
        return (int(address) & 0xFFFFFF) | ((int(rank) + 1) << _RANK_SHIFT)


@dataclass(frozen=True)
class Local:
    """An array in registers."""

    name: str
    size: int
    dtype: str


@dataclass
class Program:
    """A compiled function: ``steps`` of `tilec.emulate.frames`. ``sites`` are its statements with the
    author's places where they are known, ``params`` say how each parameter arrives: "pointer" (a number of a
    memory), "map" or "value"."""

    name: str
    steps: list[Any]
    sites: list[Any]
    locals: list[Local]
    slots: int
    invariants: Callable[[Group], list[Any]]
    shared_bytes: int
    params: tuple[str, ...]
    source: str


class Fork(Exception):
    """A statement that its group's warps must pass apart: ``parts`` are the lanes of each new group."""

    def __init__(self, parts: list[np.ndarray]) -> None:
        super().__init__()
        self.parts = parts


def of_lanes(value: Any, lanes: np.ndarray) -> Any:
    """What ``value`` is for some of the lanes; what is no array is the same for all."""
    return value[lanes] if isinstance(value, np.ndarray) else value


@dataclass(eq=False)
class Group:
    """Warps of a block that stand at one place of the program and run its statements at once."""

    block: Block
    program: Program
    #: The number of each lane's thread in the block.
    threads: np.ndarray
    #: The lanes that run; None: all of them.
    mask: np.ndarray | None = None
    #: Values that statements bind, and those that never change.
    env: list[Any] = field(default_factory=list)
    inv: list[Any] = field(default_factory=list)
    #: The arrays in registers.
    local: list[Registers] = field(default_factory=list)
    #: Branches and loops that are open, the innermost last.
    frames: list[Any] = field(default_factory=list)
    #: The next step of the program, and the statement in hand.
    pc: int = 0
    at: int = 0
    #: What a group that must wait runs on as soon as it can, and what it waits for, for messages.
    waiting: Iterator[str] | None = None
    why: str = ""
    state: dict[object, Any] = field(default_factory=dict)
    #: What the statement in hand has read of bytes that nobody wrote.
    taint: Taint = field(default_factory=Taint)

    def __post_init__(self) -> None:
        self.count = len(self.threads)
        self.lane_warps = (self.threads // WARP + self.block.first_warp).astype(np.int32)
        self.warps = np.unique(self.lane_warps)
        self.clocks = self.block.cluster.clocks

    # ---- lanes ----

    def active_warps(self, mask: np.ndarray | None) -> np.ndarray:
        """The warps with a lane in ``mask``."""
        return self.warps if mask is None else np.unique(self.lane_warps[mask])

    def whole_warps(self, mask: np.ndarray | None, what: str) -> np.ndarray:
        """The warps of ``mask``, which must not leave lanes out: ``what`` is for whole warps."""
        if mask is None:
            return self.warps
        warps = np.unique(self.lane_warps[mask])
        if int(mask.sum()) != WARP * len(warps):
            raise Hazard(f"{what} is run by a part of the lanes of warp {int(warps[0])}")
        return warps

    def by_warp(self, value: Any, dtype: str) -> np.ndarray:
        """A value as (warps, 32)."""
        if isinstance(value, np.ndarray):
            return value.reshape(-1, WARP)
        return np.full((len(self.warps), WARP), value, TYPES[dtype])

    def uniform(self, value: Any, mask: np.ndarray | None) -> Any:
        """A value that all lanes agree on, as a number. Warps that differ go on apart (`Fork`); lanes of one
        warp that differ are a hazard."""
        if not isinstance(value, np.ndarray):
            return value
        lanes = value if mask is None else value[mask]
        if len(lanes) == 0 or (lanes == lanes[0]).all():
            return lanes[0].item() if len(lanes) else 0
        self._fork_by(value, mask)
        raise AssertionError("a fork leaves")

    def _fork_by(self, value: np.ndarray, mask: np.ndarray | None) -> None:
        warps = value.reshape(-1, WARP)
        masks = np.ones_like(warps, np.bool_) if mask is None else mask.reshape(-1, WARP)
        firsts = []
        for row, live in zip(warps, masks, strict=True):
            found = row[live]
            if len(found) and (found != found[0]).any():
                raise Hazard("lanes of one warp differ in an operand that a warp has only one of")
            firsts.append(found[0].item() if len(found) else None)
        raise Fork([self._lanes([one == first for one in firsts]) for first in dict.fromkeys(firsts)])

    def _lanes(self, chosen: list[bool]) -> np.ndarray:
        return np.flatnonzero(np.repeat(np.asarray(chosen), WARP))

    def part(self, lanes: np.ndarray) -> Group:
        """The same place of the program for some of the lanes."""
        mask, taint = of_lanes(self.mask, lanes), Taint()
        made = Group(
            self.block,
            self.program,
            self.threads[lanes],
            None if mask is None or mask.all() else mask,
            [of_lanes(value, lanes) for value in self.env],
            [of_lanes(value, lanes) for value in self.inv],
            [each.part(lanes, taint) for each in self.local],
            [frame.part(lanes) for frame in self.frames],
            self.pc,
            self.at,
            taint=taint,
        )
        made.state = dict(self.state)
        return made

    # ---- memory ----

    def access(self, warps: np.ndarray, **more: Any) -> Access:
        """An access by these warps, at the statement in hand."""
        return Access(warps, self.clocks, self.at, self.block.cluster.number, **more)

    def load(self, mask: np.ndarray | None, memory: Memory, offset: Any, dtype: str) -> Any:
        """One element for each lane."""
        kind = TYPES[dtype]
        raw = self.load_bytes(mask, memory, offset, kind.itemsize)
        found = raw.view(np.uint8 if dtype == "bool" else kind)[:, 0]
        if isinstance(offset, np.ndarray):
            return found.astype(np.bool_) if dtype == "bool" else found
        return found[0] if is_float(dtype) else found[0].item()

    def load_bytes(
        self, mask: np.ndarray | None, memory: Memory, offset: Any, size: int, **more: Any
    ) -> np.ndarray:
        """``size`` bytes for each lane, one row each (one for all where the offset is one for all); ``more``
        describes the access."""
        if not isinstance(offset, np.ndarray):
            warps = self.active_warps(mask)
            places = np.full(len(warps), offset, np.int64)
            found = memory.read(places, size, self.access(warps, **more))[:1]
            if memory.shadow.has_spoiled and memory.shadow.is_spoiled(places[:1], size)[0]:
                self.taint.add(np.ones(self.count, np.bool_), f"byte {offset} of {memory.name}")
            return found
        offsets = offset.astype(np.int64, copy=False)
        if memory.shadow.has_spoiled:
            self._note_spoiled(mask, memory, offsets, size)
        if mask is None:
            return memory.read(offsets, size, self.access(self.lane_warps, **more))
        result = np.zeros((self.count, size), np.uint8)
        if mask.any():
            result[mask] = memory.read(offsets[mask], size, self.access(self.lane_warps[mask], **more))
        return result

    def _note_spoiled(self, mask: np.ndarray | None, memory: Memory, offsets: np.ndarray, size: int) -> None:
        """Lanes that read copies of what nobody wrote."""
        lanes = np.ones(self.count, np.bool_) if mask is None else mask.copy()
        lanes[lanes] = memory.shadow.is_spoiled(offsets[lanes], size)
        if lanes.any():
            self.taint.add(lanes, f"byte {int(offsets[lanes][0])} of {memory.name}")

    def store(self, mask: np.ndarray | None, memory: Memory, offset: Any, value: Any, dtype: str) -> None:
        """One element of each lane."""
        kind = TYPES[dtype]
        values = value if isinstance(value, np.ndarray) else np.full(self.count, value, kind)
        rows = np.ascontiguousarray(values, kind).view(np.uint8).reshape(self.count, kind.itemsize)
        self.store_bytes(mask, memory, offset, rows)

    def store_bytes(
        self, mask: np.ndarray | None, memory: Memory, offset: Any, rows: np.ndarray, **more: Any
    ) -> None:
        """The bytes of each lane; ``more`` describes the access."""
        offsets = np.full(self.count, offset, np.int64) if not isinstance(offset, np.ndarray) else offset
        offsets = offsets.astype(np.int64, copy=False)
        if len(rows) != self.count:
            rows = np.broadcast_to(rows, (self.count, rows.shape[1]))
        warps, taint = self.lane_warps, self.taint.lanes
        if memory.is_global:
            self.taint.check(mask, f"is stored to {memory.name}")
        if mask is not None:
            if not mask.any():
                return
            offsets, rows, warps = offsets[mask], rows[mask], warps[mask]
        memory.write(offsets, rows, self.access(warps, **more))
        if taint is not None and not memory.is_global:
            memory.shadow.spoil(offsets[taint if mask is None else taint[mask]], rows.shape[1])
