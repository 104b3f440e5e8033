"""tcgen05: products that one thread issues, whose sums lie in tensor memory (PTX ISA, "TensorCore 5th
Generation Family Instructions"): one block or a pair, 128 rows of each, operands in shared memory, the first
one in tensor memory, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tilec.emulate.group import WARP, Block, Group
from tilec.emulate.instructions.mbarriers import at, find, lanes, of_lane
from tilec.emulate.instructions.mma import OPERANDS, multiplied, widened
from tilec.emulate.instructions.registry import as_bits, instruction, unknown
from tilec.emulate.instructions.tma import chosen
from tilec.emulate.instructions.wgmma import Descriptor, chunk_addresses
from tilec.emulate.state.clocks import Hazard, merged
from tilec.emulate.state.memory import SHARED_BASE
from tilec.emulate.state.numbers import TYPES
from tilec.emulate.state.registers import Registers

ROWS, COLUMNS, _LEAST, _CHUNK = 128, 512, 32, 16
#: Bytes of a row of the first operand that a step takes; descriptors are no numbers below this one.
_STEP, _ADDRESSES = 32, 1 << 32
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
_STATE, _LOADS, _FENCED = "tensor memory", "tensor loads", "tensor fences"
#: Groups of blocks, with the words of a mask of rows that their products take.
_PAIR = "cta_group::2"
_GROUPS = {"cta_group::1": 4, _PAIR: 8}
#: Writer of cells that nobody has written; moments of accesses that are under way, and of those that nobody
#: has been told of.
_NOBODY, _UNTOLD, _UNDER_WAY = -1, 1 << 40, 1 << 41
_PRODUCT = "tcgen05.mma"
Part = tuple[slice, slice]


@dataclass(eq=False)
class TensorMemory:
    """What a block has: values as words, who wrote each (``agent`` for products of a ``group`` of blocks) and
    when, those of the last reads of each column by warp, the columns that are handed out, by their first, who
    ``asked`` for the last ones (a warp) and when. Accesses of a warp have no moment before tcgen05.wait
    (`_UNDER_WAY`) and tcgen05.fence::before_thread_sync (`_UNTOLD`). ``known`` is what each warp of the
    cluster knew at its last tcgen05.fence::after_thread_sync."""

    agent: int
    group: str
    first_warp: int
    known: dict[int, np.ndarray]
    values: np.ndarray = field(default_factory=lambda: np.zeros((ROWS, COLUMNS), np.uint32))
    writers: np.ndarray = field(default_factory=lambda: np.full((ROWS, COLUMNS), _NOBODY, np.int64))
    moments: np.ndarray = field(default_factory=lambda: np.zeros((ROWS, COLUMNS), np.int64))
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

    def reached(self, warp: int) -> int:
        """The first of the 32 rows that a warp reaches."""
        return (warp - self.first_warp) % 4 * WARP

    def check_written(self, warp: int, part: Part, use: str) -> None:
        """Hazard where ``use`` by a warp takes what nobody has written, or what it does not know to be
        there."""
        if (self.writers[part] == _NOBODY).any():
            raise Hazard(f"{use} of tensor memory that nothing has written")
        self.check_complete(warp, part, use)

    def check_complete(self, warp: int, part: Part, use: str) -> None:
        """Hazard where a warp does not know the last writes of cells to be complete."""
        writers, moments = self.writers[part], self.moments[part]
        for writer in np.unique(writers[writers != _NOBODY]):
            last = int(moments[writers == writer].max())
            if writer == self.agent and use == _PRODUCT:
                continue  # products of a block follow each other
            if not self.knows(warp, int(writer), last):
                raise Hazard(*self._unknown(warp, int(writer), last, use))

    def knows(self, warp: int, agent: int, moment: int) -> bool:
        """Whether a warp knows an access of another agent, or of its own, to be over."""
        if agent == warp:
            return moment < _UNDER_WAY
        known = self.known.get(warp)
        return known is not None and agent < len(known) and bool(known[agent] >= moment)

    def _unknown(self, warp: int, writer: int, moment: int, use: str) -> tuple[str, str, str]:
        if writer == self.agent:
            what = f"{use} by warp {warp} of sums of products that it does not know to be complete"
            remedy = (
                "wait for an mbarrier at which tcgen05.commit arrives, then tcgen05.fence::after_thread_sync"
            )
            return what, "", remedy
        what = f"{use} by warp {warp} of tensor memory that warp {writer} may still write"
        return what, "", self.missing(moment, "st")

    def missing(self, moment: int, kind: str) -> str:
        """What a warp's last access lacks."""
        if moment == _UNDER_WAY:
            return f"tcgen05.wait::{kind} is missing behind it"
        if moment == _UNTOLD:
            return f"tcgen05.fence::before_thread_sync is missing behind tcgen05.wait::{kind}"
        return (
            f"a barrier is missing behind tcgen05.wait::{kind}, or tcgen05.fence::after_thread_sync behind it"
        )

    def finish(self, warp: int, is_load: bool) -> None:
        """Loads, or stores, of a warp that are under way are done."""
        times = self.reads.get(warp, np.zeros(0)) if is_load else self.moments
        whose = np.ones_like(times, np.bool_) if is_load else self.writers == warp
        times[whose & (times == _UNDER_WAY)] = _UNTOLD

    def tell(self, warp: int, moment: int) -> None:
        """Those of a warp that are done get a moment."""
        self.moments[(self.writers == warp) & (self.moments == _UNTOLD)] = moment
        reads = self.reads.get(warp, np.zeros(0))
        reads[reads == _UNTOLD] = moment


def _memory(block: Block, group: str = "") -> TensorMemory:
    """That of a block, for instructions of a group of blocks ("": of its own warps alone)."""
    found = block.state.get(_STATE)
    if found is None:
        first = _pair(block)[0] if group == _PAIR else block
        agent = block.cluster.agents.of((_STATE, first), "tcgen05.mma")
        found = block.state[_STATE] = TensorMemory(agent, group, block.first_warp, _known(block))
        block.cluster.clocks.ensure()
    assert isinstance(found, TensorMemory)
    if group not in ("", found.group):
        raise Hazard(f"an instruction of {group} in a kernel with others of {found.group}")
    return found


def _known(block: Block) -> dict[int, np.ndarray]:
    """What the warps of a cluster knew at their last tcgen05.fence::after_thread_sync: a product of a pair
    overwrites sums of another block, too."""
    known: dict[int, np.ndarray] = block.cluster.blocks[0].state.setdefault(_FENCED, {})
    return known


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
    whole = slice(0, ROWS), slice(first, first + found.given.pop(first))
    _check_idle(found, int(warp), whole)
    found.check_complete(int(warp), whole, "tcgen05.dealloc")


@instruction(*(f"tcgen05.relinquish_alloc_permit.{group}.sync.aligned" for group in _GROUPS))
def relinquish(g: Group, m: Any, parts: tuple[str, ...]) -> None:
    """The block asks for no more."""
    g.whole_warps(m, "tcgen05.relinquish_alloc_permit")


def _check_idle(found: TensorMemory, warp: int, part: Part) -> None:
    """Hazard where warps may still read cells that a warp overwrites or gives up."""
    rows, columns = part
    for other, moments in found.reads.items():
        last = int(moments[columns].max())
        if last and rows.start <= found.reached(other) < rows.stop and not found.knows(warp, other, last):
            raise Hazard(
                f"warp {warp} overwrites or gives up tensor memory that warp {other} may still read",
                remedy=found.missing(last, "ld"),
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


class _Form(NamedTuple):
    """What an instruction descriptor says (PTX ISA, "Instruction descriptor"): the columns of the sums, their
    type, and of A and of B the type and whether it lies across K."""

    columns: int
    sums: np.dtype
    types: tuple[str, str]
    across: tuple[bool, bool]

    @classmethod
    def of(cls, described: int, kind: str, blocks: int) -> _Form:
        """Of a product of one block or two. Raises Hazard for one that no such product has."""
        columns, rows = (described >> 17 & 0x3F) * 8, (described >> 24 & 0x1F) * 16
        sums, a, b = described >> 4 & 3, described >> 7 & 7, described >> 10 & 7
        types = _KINDS[kind]
        is_known = sums == (2 if kind == "kind::i8" else 1) and types.keys() >= {a, b}
        if rows != ROWS * blocks or columns % (16 * blocks) or columns == 0 or not is_known:
            raise Hazard(f"tcgen05.mma with the instruction descriptor {described:#x}")
        across = bool(described >> 15 & 1), bool(described >> 16 & 1)
        return cls(columns, _SUMS[sums], (types[a], types[b]), across)


def _multiply(
    g: Group, warp: int, parts: tuple[str, ...], to: int, a: int, b: int, described: int, adds: int
) -> None:
    """The rows of A and of sums, and columns of B, of a pair: the first block's, then the second's."""
    _, _, group, kind = parts[:4]
    blocks = _pair(g.block) if group == _PAIR else [g.block]
    if g.block is not blocks[0]:
        raise Hazard(f"tcgen05.mma of {group} in the second block of a pair")
    form = _Form.of(described, kind, len(blocks))
    place = slice(to & 0xFFFF, (to & 0xFFFF) + form.columns)
    whole = slice(0, ROWS), place
    found = [_memory(block, group) for block in blocks]
    for each in found:
        _check_given(g, each, warp, place)
        _check_idle(each, warp, whole)
        each.check_complete(warp, whole, _PRODUCT)
    agent = found[0].agent
    moment = g.clocks.advance(agent)
    (a_across, b_across), (a_type, b_type) = form.across, form.types
    left = [
        _held(each, warp, a, a_across, a_type)
        if a < _ADDRESSES
        else _operand(g, block, warp, agent, a, ROWS, a_across, a_type, moment)
        for block, each in zip(blocks, found, strict=True)
    ]
    part = form.columns // len(blocks)
    right = [_operand(g, block, warp, agent, b, part, b_across, b_type, moment) for block in blocks]
    for each, own in zip(found, left, strict=True):
        made, values = multiplied(own, np.concatenate(right)), each.values.view(form.sums)
        if adds and (each.writers[whole] == _NOBODY).any():
            raise Hazard("tcgen05.mma adds to sums that nothing has written", remedy="clear them first")
        values[:, place] = made + values[:, place] if adds else made
        each.writers[whole], each.moments[whole] = agent, moment


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


def _held(found: TensorMemory, warp: int, address: int, across: bool, kind: str) -> np.ndarray:
    """(128, K) of a first operand in tensor memory: 32 bytes of each row (PTX ISA, "tcgen05.mma", matrix A in
    tensor memory)."""
    dtype, columns = OPERANDS[kind], _STEP // 4
    if across or address >> 16:
        raise Hazard(f"tcgen05.mma with a first operand in tensor memory at {address:#x}, across K: {across}")
    found.check(address, columns)
    part = slice(0, ROWS), slice(address, address + columns)
    found.check_written(warp, part, _PRODUCT)
    return widened(np.ascontiguousarray(found.values[part]).view(dtype), kind)


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


def _registers(each: Any) -> int:
    """Registers of a load: four for each 8 columns."""
    return 4 * int(next(part for part in each.parts if part[0] == "x" and part[1:].isdigit())[1:])


@instruction("tcgen05.ld.sync.aligned.16x256b", outputs=_registers, in_place=True)
def load(
    g: Group, m: Any, parts: tuple[str, ...], target: Sequence[tuple[Registers, list[Any]]], address: Any
) -> None:
    """16 rows of a warp's 32 and 8 columns for every four registers, as the sums of mma.m16n8 lie."""
    ((registers, indices),) = target
    made = np.empty((len(indices), g.count), np.uint32)
    for start, warp, part in _parts(g, m, parts, address, len(indices)):
        found = _memory(g.block)
        found.check_written(warp, part, "tcgen05.ld")
        found.reads.setdefault(warp, np.zeros(COLUMNS, np.int64))[part[1]] = _UNDER_WAY
        made[:, start : start + WARP] = _to_lanes(found.values[part])
    number = g.state.get(_LOADS, 0) + 1
    registers.start(int(indices[0]), list(made.view(TYPES[registers.dtype])), number)
    g.state[_LOADS] = number


@instruction("tcgen05.st.sync.aligned.16x128b", "tcgen05.st.sync.aligned.16x256b")
def store(g: Group, m: Any, parts: tuple[str, ...], address: Any, *words: Any) -> None:
    """The opposite: two registers for every four columns, or four for every eight."""
    given = np.stack([as_bits(word, "uint32", g.count) for word in words])
    for start, warp, part in _parts(g, m, parts, address, len(words)):
        found = _memory(g.block)
        own = found.reached(warp)
        _check_idle(found, warp, (slice(own, own + WARP), part[1]))
        found.check_complete(warp, part, "tcgen05.st")
        per_row = 1 if "16x128b" in parts else 2
        found.values[part] = _from_lanes(given[:, start : start + WARP], per_row)
        found.writers[part], found.moments[part] = warp, _UNDER_WAY


def _parts(
    g: Group, m: Any, parts: tuple[str, ...], address: Any, count: int
) -> Iterator[tuple[int, int, Part]]:
    """The first lane of each warp, its number, and the rows and columns that ``count`` registers of it
    have: 16 x 32 bits for every one, two rows apart."""
    if "pack::16b" in parts or "unpack::16b" in parts or (m is not None and not m.all()):
        raise unknown(parts)
    g.whole_warps(m, ".".join(parts[:2]))
    found, columns = _memory(g.block), 2 * count
    places = np.broadcast_to(np.asarray(address, np.int64), (g.count,))
    for start in range(0, g.count, WARP):
        warp, place = int(g.lane_warps[start]), int(places[start])
        row, column = place >> 16, place & 0xFFFF
        own = found.reached(warp)
        if row not in (own, own + 16):
            raise Hazard(
                f"warp {warp} takes rows from {row} on of tensor memory, it reaches {own} to {own + 31}"
            )
        found.check(column, columns)
        yield start, warp, (slice(row, row + 16), slice(column, column + columns))


def _to_lanes(cells: np.ndarray) -> np.ndarray:
    """(16, columns) as (registers, 32): a lane has two neighbours of row lane // 4 and of that 8 below."""
    lane = np.arange(WARP)
    quads = cells.reshape(2, 8, -1, 4, 2)  # half, row, quad, pair of columns, column
    return np.asarray(quads[:, lane // 4, :, lane % 4, :].transpose(2, 1, 3, 0).reshape(-1, WARP))


def _from_lanes(words: np.ndarray, per_row: int) -> np.ndarray:
    """(registers, 32) as (16, columns), where a lane has ``per_row`` neighbours of both of its rows."""
    lanes = words.reshape(-1, 2, per_row, 8, 4)  # quad, half, column, row, place in the row
    return np.asarray(lanes.transpose(1, 3, 0, 4, 2).reshape(16, -1))


@instruction("tcgen05.wait::ld.sync.aligned", "tcgen05.wait::st.sync.aligned")
def wait(g: Group, m: Any, parts: tuple[str, ...]) -> None:
    """All loads, or all stores, so far are done."""
    found, is_load = _memory(g.block), "wait::ld" in parts
    for registers in g.local if is_load else ():
        registers.settle(g.state.get(_LOADS, 0))
    for warp in g.whole_warps(m, "tcgen05.wait"):
        found.finish(int(warp), is_load)


@instruction("tcgen05.fence::before_thread_sync")
def fence_before(g: Group, m: Any, parts: tuple[str, ...]) -> None:
    """What a warp has loaded and stored is over for those who meet it behind this."""
    found: TensorMemory | None = g.block.state.get(_STATE)
    if found is None:
        return
    for warp in g.active_warps(m):
        found.tell(int(warp), int(g.clocks.seen[warp, warp]))


@instruction("tcgen05.fence::after_thread_sync")
def fence_after(g: Group, m: Any, parts: tuple[str, ...]) -> None:
    """What a warp does next stands behind all that it knows now."""
    for warp in g.active_warps(m):
        _known(g.block)[int(warp)] = g.clocks.seen[warp].copy()
