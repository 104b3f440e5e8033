"""tcgen05: products that one thread issues, whose sums lie in tensor memory (PTX ISA, "TensorCore 5th
Generation Family Instructions"): one block or a pair, operands in shared memory, 128 rows of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec.emulate.clocks import Hazard, merged
from tilec.emulate.group import WARP, Block, Group
from tilec.emulate.instructions.mbarriers import at, find, lanes, of_lane
from tilec.emulate.instructions.mma import OPERANDS, multiplied, widened
from tilec.emulate.instructions.registry import instruction, unknown
from tilec.emulate.instructions.tma import chosen
from tilec.emulate.instructions.wgmma import Descriptor, chunk_addresses
from tilec.emulate.memory import SHARED_BASE
from tilec.emulate.numbers import TYPES
from tilec.emulate.registers import Registers

ROWS, COLUMNS, _LEAST, _CHUNK = 128, 512, 32, 16
#: Bits 61 to 63 of a descriptor, and what bits 46 to 48 must be.
_PATTERNS, _ALWAYS = {0: 0, 2: 128, 4: 64, 6: 32}, 1
#: Types of A and B by their number in an instruction descriptor, for each kind, and of sums.
_KINDS = {
    "kind::f16": {0: "f16", 1: "bf16"},
    "kind::tf32": {2: "tf32"},
    "kind::f8f6f4": {0: "e4m3", 1: "e5m2"},
    "kind::i8": {0: "u8", 1: "s8"},
}
_SUMS = {1: np.dtype(np.float32), 2: np.dtype(np.int32)}
_STATE, _LOADS = "tensor memory", "tensor loads"
#: Groups of blocks, with the words of a mask of rows that their products take.
_PAIR = "cta_group::2"
_GROUPS = {"cta_group::1": 4, _PAIR: 8}


@dataclass(eq=False)
class TensorMemory:
    """What a block has: values as words, the moment of the product that wrote each, those of the last reads
    of each column by warp, the columns that are handed out, by their first, who ``asked`` for the last ones
    (a warp) and when. ``agent`` stands for the products of a ``group`` of blocks."""

    agent: int
    group: str
    values: np.ndarray = field(default_factory=lambda: np.zeros((ROWS, COLUMNS), np.uint32))
    moments: np.ndarray = field(default_factory=lambda: np.full((ROWS, COLUMNS), -1, np.int64))
    reads: dict[int, np.ndarray] = field(default_factory=dict)
    given: dict[int, int] = field(default_factory=dict)
    asked: tuple[int, int] = (0, 0)

    def check(self, column: int, count: int) -> None:
        """Hazard for columns that nobody has been given."""
        if not any(first <= column and column + count <= first + size for first, size in self.given.items()):
            raise Hazard(
                f"columns {column} to {column + count - 1} of tensor memory are not the block's",
                remedy="tcgen05.alloc first",
            )


def _memory(block: Block, group: str = "") -> TensorMemory:
    """That of a block, for instructions of a group of blocks ("": of its own warps alone)."""
    found = block.state.get(_STATE)
    if found is None:
        first = _pair(block)[0] if group == _PAIR else block
        agent = block.cluster.agents.of((_STATE, first), "tcgen05.mma")
        found = block.state[_STATE] = TensorMemory(agent, group)
        block.cluster.clocks.ensure()
    assert isinstance(found, TensorMemory)
    if group not in ("", found.group):
        raise Hazard(f"an instruction of {group} in a kernel with others of {found.group}")
    return found


def _pair(block: Block) -> list[Block]:
    """The two blocks of a pair: their ranks differ in the lowest bit."""
    first = block.rank & ~1
    found = block.cluster.blocks[first : first + 2]
    if len(found) < 2:
        raise Hazard(f"{_PAIR} in block {block.rank} of a cluster of {len(block.cluster.blocks)}")
    return found


@instruction(*(f"tcgen05.alloc.{group}.sync.aligned" for group in _GROUPS))
def alloc(g: Group, m: Any, parts: tuple[str, ...], address: Any, count: Any) -> None:
    """A warp gets columns; their address goes to shared memory."""
    (warp,) = g.whole_warps(m, "tcgen05.alloc")
    columns = int(g.uniform(count, m))
    if columns < _LEAST or columns > COLUMNS or columns & (columns - 1):
        raise Hazard(f"tcgen05.alloc of {columns} columns: a power of two from {_LEAST} to {COLUMNS}")
    found = _memory(g.block, parts[2])
    found.asked = int(warp), int(g.clocks.seen[warp, warp])
    first = max((start + size for start, size in found.given.items()), default=0)
    if first + columns > COLUMNS:
        raise Hazard(
            f"tcgen05.alloc of {columns} columns where {COLUMNS - first} are left: it waits for ever"
        )
    found.given[first] = columns
    g.clocks.tick(np.asarray([warp]))
    memory, offset = at(g, g.uniform(address, m))
    word = np.asarray([first], np.uint32).view(np.uint8).reshape(1, -1)
    memory.write(np.asarray([offset]), word, g.access(np.asarray([warp], np.int32)))


@instruction(*(f"tcgen05.dealloc.{group}.sync.aligned" for group in _GROUPS))
def dealloc(g: Group, m: Any, parts: tuple[str, ...], address: Any, count: Any) -> None:
    """A warp gives columns back that nobody works on."""
    (warp,) = g.whole_warps(m, "tcgen05.dealloc")
    found, first = _memory(g.block, parts[2]), int(g.uniform(address, m))
    if found.given.get(first) != int(g.uniform(count, m)):
        raise Hazard(f"tcgen05.dealloc of columns from {first} on, which were not handed out so")
    columns = slice(first, first + found.given.pop(first))
    _check_idle(g, found, int(warp), columns)
    if (found.moments[:, columns] > g.clocks.seen[warp, found.agent]).any():
        raise Hazard(f"warp {int(warp)} gives up tensor memory to which products may still write")


@instruction(*(f"tcgen05.relinquish_alloc_permit.{group}.sync.aligned" for group in _GROUPS))
def relinquish(g: Group, m: Any, parts: tuple[str, ...]) -> None:
    """The block asks for no more."""
    g.whole_warps(m, "tcgen05.relinquish_alloc_permit")


def _check_idle(g: Group, found: TensorMemory, warp: int, columns: slice) -> None:
    """Hazard where other warps may still read columns."""
    for other, moments in found.reads.items():
        if g.clocks.seen[warp, other] < moments[columns].max():
            raise Hazard(
                f"warp {warp} overwrites or gives up tensor memory that warp {other} may still read",
                remedy="a barrier is missing behind tcgen05.wait::ld",
            )


@instruction(*(f"tcgen05.mma.{group}.{kind}" for group in _GROUPS for kind in _KINDS))
def mma(
    g: Group, m: Any, parts: tuple[str, ...], to: Any, a: Any, b: Any, described: Any, *rest: Any
) -> None:
    """D = A x B + D, or A x B, for each lane that runs it: one, as a rule."""
    *masks, adds = rest
    if any(np.any(mask) for mask in masks) or len(masks) != _GROUPS[parts[2]]:
        raise unknown(parts)
    for lane, warp in lanes(g, m):
        values = [of_lane(each, lane) for each in (to, a, b, described, adds)]
        _multiply(g, warp, parts, *map(int, values))


def _multiply(
    g: Group, warp: int, parts: tuple[str, ...], to: int, a: int, b: int, described: int, adds: int
) -> None:
    """The rows of A and of sums, and columns of B, of a pair: the first block's, then the second's."""
    _, _, group, kind = parts[:4]
    blocks = _pair(g.block) if group == _PAIR else [g.block]
    if g.block is not blocks[0]:
        raise Hazard(f"tcgen05.mma of {group} in the second block of a pair")
    columns, rows = (described >> 17 & 0x3F) * 8, (described >> 24 & 0x1F) * 16
    sums, *kinds = described >> 4 & 3, described >> 7 & 7, described >> 10 & 7
    types = _KINDS[kind]
    is_known = sums == (2 if kind == "kind::i8" else 1) and types.keys() >= set(kinds)
    count = len(blocks)
    if rows != ROWS * count or columns % (16 * count) or columns == 0 or not is_known:
        raise Hazard(f"tcgen05.mma with the instruction descriptor {described:#x}")
    place = slice(to & 0xFFFF, (to & 0xFFFF) + columns)
    found = [_memory(block, group) for block in blocks]
    for each in found:
        _check_given(g, each, warp, place)
        _check_idle(g, each, warp, place)
    agent = found[0].agent
    moment = g.clocks.advance(agent)
    across = [bool(described >> side & 1) for side in (15, 16)]
    left = [_operand(g, block, warp, agent, a, ROWS, across[0], types[kinds[0]], moment) for block in blocks]
    part = columns // count
    right = [_operand(g, block, warp, agent, b, part, across[1], types[kinds[1]], moment) for block in blocks]
    for each, own in zip(found, left, strict=True):
        made, values = multiplied(own, np.concatenate(right)), each.values.view(_SUMS[sums])
        if adds and (each.moments[:, place] < 0).any():
            raise Hazard("tcgen05.mma adds to sums that nothing has written", remedy="clear them first")
        values[:, place] = made + values[:, place] if adds else made
        each.moments[:, place] = moment


def _check_given(g: Group, found: TensorMemory, warp: int, place: slice) -> None:
    """Hazard for columns that a block has not been given as far as ``warp`` knows."""
    found.check(place.start, place.stop - place.start)
    asker, moment = found.asked
    if g.clocks.seen[warp, asker] < moment:
        raise Hazard(
            f"warp {warp} multiplies into tensor memory that warp {asker} has asked for with nothing that "
            "orders the two",
            remedy="a barrier is missing behind tcgen05.alloc",
        )


def _operand(
    g: Group, block: Block, warp: int, agent: int, bits: int, rows: int, across: bool, kind: str, moment: int
) -> np.ndarray:
    """(rows, K) of an operand that a descriptor describes, in the shared memory of a block."""
    bits &= 0xFFFFFFFFFFFFFFFF
    if (bits >> 46 & 7) != _ALWAYS or bits >> 49 & 7 or bits >> 61 not in _PATTERNS:
        raise Hazard(f"tcgen05.mma with the matrix descriptor {bits:#x}")
    start, leading, stride = ((bits >> place & 0x3FFF) * _CHUNK for place in (0, 16, 32))
    dtype = OPERANDS[kind]
    described = Descriptor(start, leading, stride, _PATTERNS[bits >> 61])
    addresses = chunk_addresses(described, rows, across, dtype.itemsize)
    warps = np.full(addresses.size, warp, np.int32)
    access = g.access(warps, agent=agent, moment=moment, is_async_proxy=True)
    raw = block.shared.read(addresses.reshape(-1) - SHARED_BASE, _CHUNK, access)
    values = widened(np.ascontiguousarray(raw).view(dtype), kind).reshape(addresses.shape[0], -1)
    return values.T if across else values


@instruction(*(f"tcgen05.commit.{group}.mbarrier::arrive::one" for group in _GROUPS))
def commit(g: Group, m: Any, parts: tuple[str, ...], address: Any, *mask: Any) -> None:
    """An arrival when all products so far of the thread are complete; with .multicast::cluster in every block
    of a mask."""
    found = _memory(g.block, parts[2])
    for lane, warp in lanes(g, m):
        places = [of_lane(address, lane)]
        if "multicast::cluster" in parts:
            _, offset = at(g, places[0])
            blocks = chosen(g, int(of_lane(mask[0], lane)))
            places = [Block.mapped(offset + SHARED_BASE, block.rank) for block in blocks]
        done = np.zeros_like(g.clocks.now)
        done[found.agent] = g.clocks.now[found.agent]
        known = g.clocks.snapshot(np.asarray([warp]))
        for place in places:
            barrier = find(g, place, warp)
            barrier.arrive(merged(known, (done,) * len(known)), 1)
            barrier.settle(g.clocks)
    g.clocks.tick(g.active_warps(m))


def _loaded(each: Any) -> int:
    """Registers of a load: four for each 8 columns."""
    return 4 * int(next(part for part in each.parts if part[0] == "x" and part[1:].isdigit())[1:])


@instruction("tcgen05.ld.sync.aligned.16x256b", outputs=_loaded, in_place=True)
def load(
    g: Group, m: Any, parts: tuple[str, ...], target: Sequence[tuple[Registers, list[Any]]], address: Any
) -> None:
    """16 rows of a warp's 32 and 8 columns for every four registers, as the sums of mma.m16n8 lie."""
    g.whole_warps(m, "tcgen05.ld")
    ((registers, indices),) = target
    if "pack::16b" in parts or (m is not None and not m.all()):
        raise unknown(parts)
    found, count = _memory(g.block), len(indices)
    made = np.empty((count, g.count), np.uint32)
    places = np.broadcast_to(np.asarray(address, np.int64), (g.count,))
    for start in range(0, g.count, WARP):
        warp = int(g.lane_warps[start])
        made[:, start : start + WARP] = _rows(g, found, warp, int(places[start]), count)
    number = g.state.get(_LOADS, 0) + 1
    registers.start(int(indices[0]), list(made.view(TYPES[registers.dtype])), number)
    g.state[_LOADS] = number


def _rows(g: Group, found: TensorMemory, warp: int, place: int, count: int) -> np.ndarray:
    """What the lanes of a warp get: (registers, 32)."""
    row, column, columns = place >> 16, place & 0xFFFF, 2 * count
    own = (warp - g.block.first_warp) % 4 * WARP
    if row not in (own, own + 16):
        raise Hazard(f"warp {warp} loads rows from {row} on of tensor memory, it reaches {own} to {own + 31}")
    found.check(column, columns)
    part = np.s_[row : row + 16, column : column + columns]
    if (found.moments[part] < 0).any():
        raise Hazard("tcgen05.ld of tensor memory that nothing has written")
    if (found.moments[part] > g.clocks.seen[warp, found.agent]).any():
        raise Hazard(
            f"warp {warp} loads sums of products that it does not know to be complete",
            remedy="wait for an mbarrier at which tcgen05.commit arrives",
        )
    found.reads.setdefault(warp, np.zeros(COLUMNS, np.int64))[column : column + columns] = int(
        g.clocks.seen[warp, warp]
    )
    lane = np.arange(WARP)
    quads = found.values[part].reshape(2, 8, count // 4, 4, 2)  # half, row, quad, pair of columns, column
    return np.asarray(quads[:, lane // 4, :, lane % 4, :].transpose(2, 1, 3, 0).reshape(count, WARP))


@instruction("tcgen05.wait::ld.sync.aligned")
def wait(g: Group, m: Any, parts: tuple[str, ...]) -> None:
    """All loads so far are done."""
    for registers in g.local:
        registers.settle(g.state.get(_LOADS, 0))


@instruction("tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync")
def fence(g: Group, m: Any, parts: tuple[str, ...]) -> None:
    """Orders what stands around a barrier; products and loads are in order here."""
