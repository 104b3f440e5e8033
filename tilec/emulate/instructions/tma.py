"""Bulk copies: boxes of tensors by their maps, and runs of bytes (PTX ISA, "Tensor Copies")."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tilec.emulate.group import Block, Group
from tilec.emulate.instructions.mbarriers import Barrier, at, find, lanes, of_lane
from tilec.emulate.instructions.registry import instruction, unknown
from tilec.emulate.instructions.tensor_maps import CHUNK, ImageMap, TensorMap
from tilec.emulate.state.clocks import Hazard, merged
from tilec.emulate.state.memory import SHARED_BASE, At, Memory

#: Bytes of the pattern -> how many bits of the row number go into the number of a 16-byte chunk.
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
#: A byte that may be any: no number in every float.
ANYTHING = 0xFF
#: What tensor copies want of an address in shared memory.
ALIGNMENT = 128


def swizzled(addresses: np.ndarray, pattern: int) -> np.ndarray:
    """Addresses under a pattern: low bits of the number of the 128-byte row into the 16-byte chunk's."""
    mask = (1 << _SWIZZLES[pattern]) - 1
    return np.asarray(addresses ^ ((addresses >> 7 & mask) << 4))


@lru_cache(maxsize=1024)
def chunk_offsets(offset: int, count: int, pattern: int) -> np.ndarray:
    """Offsets in shared memory of the 16-byte chunks of a box."""
    plain = SHARED_BASE + offset + np.arange(0, count, CHUNK)
    return swizzled(plain, pattern) - SHARED_BASE


# ---- from global memory ----


@instruction(*(f"cp.async.bulk.tensor.{axes}d.shared::{scope}.global" for axes in range(1, 6)
               for scope in ("cluster", "cta")))  # fmt: skip
def load_box(g: Group, m: Any, parts: tuple[str, ...], to: Any, tensor: TensorMap, *operands: Any) -> None:
    """A box, or pixels of a window, into shared memory: elements outside of the tensor become 0. With
    .multicast::cluster into the same place of every block of a mask. Behind the last box of the rest of a
    tile, rows hold anything: they become `ANYTHING`."""
    forms = {"tile": TensorMap, "im2col": ImageMap} if "mbarrier::complete_tx::bytes" in parts else {}
    form = next((forms[part] for part in parts if part in forms), None)
    if form is None:
        raise unknown(parts)
    if type(tensor) is not form:
        raise Hazard(f"{'.'.join(parts)} with a map of {tensor.memory.name} that was not encoded for it")
    axes = int(parts[4][0])
    for lane, warp in lanes(g, m):
        start = tuple(int(of_lane(each, lane)) for each in operands[:axes])
        barrier, *rest = (of_lane(each, lane) for each in operands[axes:])
        moved = tuple(map(int, rest[: axes - 2])) if form is ImageMap else ()
        values = _box(g, tensor, start, moved, warp)
        mask = int(rest[len(moved)]) if "multicast::cluster" in parts else None
        if "cta_group::2" not in parts and at(g, barrier)[0] is not at(g, of_lane(to, lane))[0]:
            raise Hazard(
                "a bulk copy to one block whose bytes count at a barrier of another", remedy="cta_group::2"
            )
        _deliver(g, of_lane(to, lane), barrier, mask, values, warp, tensor.swizzle, tensor.left_bytes(start))


def _box(
    g: Group, tensor: TensorMap, start: tuple[int, ...], moved: tuple[int, ...], warp: int
) -> np.ndarray:
    """The bytes of a box, in the order of shared memory without its swizzle."""
    tensor.check()
    tensor.check_start(start, is_store=False)
    offsets, inside = tensor.pixels(start, moved) if isinstance(tensor, ImageMap) else tensor.places(start)
    values = np.zeros((len(offsets), tensor.size), np.uint8)
    if inside.any():
        warps = np.full(int(inside.sum()), warp, np.int32)
        values[inside] = tensor.memory.read(offsets[inside], tensor.size, g.access(warps))
    return values.reshape(-1, CHUNK)


def _deliver(
    g: Group,
    to: Any,
    barrier: Any,
    mask: int | None,
    values: np.ndarray,
    warp: int,
    swizzle: int,
    behind: int = 0,
) -> None:
    """Writes chunks to shared memory and counts their bytes at the barrier, in each block of a mask; so many
    bytes ``behind`` them hold anything."""
    memory, offset = at(g, to)
    _, place = at(g, barrier)
    targets = [(memory, find(g, barrier, warp))]
    if mask is not None:
        blocks = chosen(g, mask)
        targets = [(block.shared, find(g, Block.mapped(place + SHARED_BASE, block.rank), warp))
                   for block in blocks]  # fmt: skip
    if offset % ALIGNMENT:
        raise Hazard(f"a bulk copy to byte {offset} of {memory.name}, no multiple of {ALIGNMENT}")
    for target, found in targets:
        _arrived(g, target, offset, found, values, warp, swizzle, behind)


def _arrived(
    g: Group,
    memory: Memory,
    offset: int,
    found: Barrier,
    values: np.ndarray,
    warp: int,
    swizzle: int,
    behind: int,
) -> None:
    if not found.is_fenced:
        raise Hazard(
            f"a bulk copy uses {found.name}, whose initialisation no fence has made visible to it",
            remedy="put fence.mbarrier_init or fence.proxy.async behind mbarrier.init",
        )
    found.bytes -= values.size
    values = np.concatenate([values, np.full((behind // CHUNK, CHUNK), ANYTHING, np.uint8)])
    warps = np.full(len(values), warp, np.int32)
    access = g.access(warps, agent=found.agent, moment=found.phase + 1, is_async_proxy=True)
    memory.write(chunk_offsets(offset, values.size, swizzle), values, access)
    found.known = merged(found.known, g.clocks.sent(warp))  # it was started behind what its thread waited for
    found.settle(g.clocks)


def chosen(g: Group, mask: int) -> list[Block]:
    """The blocks of a multicast."""
    blocks = g.block.cluster.blocks
    if mask >> len(blocks) or mask == 0:
        raise Hazard(f"multicast to blocks {mask:#b} of a cluster of {len(blocks)}")
    return [block for block in blocks if mask >> block.rank & 1]


@instruction("cp.async.bulk.shared::cluster.global", "cp.async.bulk.shared::cta.global")
def load_run(
    g: Group, m: Any, parts: tuple[str, ...], to: Any, source: At, size: Any, barrier: Any, *more: Any
) -> None:
    """A run of bytes into shared memory."""
    for lane, warp in lanes(g, m):
        count, place = int(of_lane(size, lane)), of_lane(source, lane)
        offsets = run_offsets(int(place.offset), count)
        values = place.memory.read(offsets, CHUNK, g.access(np.full(len(offsets), warp, np.int32)))
        mask = int(of_lane(more[0], lane)) if "multicast::cluster" in parts else None
        _deliver(g, of_lane(to, lane), of_lane(barrier, lane), mask, values, warp, 0)


def run_offsets(start: int, count: int) -> np.ndarray:
    """The chunks of a run of bytes. Hazard where it is not made of whole ones."""
    if count % CHUNK or start % CHUNK:
        raise Hazard(f"a bulk copy of {count} bytes from byte {start}, no multiples of {CHUNK}")
    return start + np.arange(0, count, CHUNK)


@instruction("cp.async.bulk.shared::cluster.shared::cta")
def send_run(g: Group, m: Any, parts: tuple[str, ...], to: Any, source: Any, size: Any, barrier: Any) -> None:
    """A run of bytes into the shared memory of another block."""
    for lane, warp in lanes(g, m):
        memory, start = at(g, of_lane(source, lane))
        offsets = run_offsets(start, int(of_lane(size, lane)))
        found = find(g, of_lane(barrier, lane), warp)
        access = g.access(np.full(len(offsets), warp, np.int32), agent=found.agent, moment=found.phase + 1,
                          is_async_proxy=True)  # fmt: skip
        values = memory.read(offsets, CHUNK, access)
        _deliver(g, of_lane(to, lane), of_lane(barrier, lane), None, values, warp, 0)


# ---- to global memory ----


@dataclass
class Stores:
    """The bulk stores of one thread: who reads and who writes for it, and its groups."""

    reader: int
    writer: int
    groups: int = 0
    is_open: bool = False
    read: int = 0


def stores(g: Group, lane: int) -> Stores:
    """The stores of a lane's thread."""
    thread, agents = int(g.threads[lane]), g.block.cluster.agents
    key = ("stores", g.block.rank, thread)
    if key not in g.block.state:
        text = f"a bulk store of thread {thread}"
        g.block.state[key] = Stores(agents.of((key, "read"), text), agents.of((key, "write"), text))
        g.clocks.ensure()
    found: Stores = g.block.state[key]
    return found


def boxes_out(
    g: Group, m: Any, tensor: TensorMap, operands: tuple[Any, ...]
) -> Iterator[tuple[int, Stores, np.ndarray, np.ndarray]]:
    """The box that each thread takes out of shared memory, as far as it lies inside the tensor: the thread's
    warp, its stores, where the elements go, and their bytes (elements, bytes of one)."""
    axes = len(tensor.box)
    for lane, warp in lanes(g, m):
        tensor.check()
        own = stores(g, lane)
        own.is_open = True
        start = tuple(int(of_lane(each, lane)) for each in operands[:axes])
        tensor.check_start(start, is_store=True)
        memory, offset = at(g, of_lane(operands[axes], lane))
        if offset % ALIGNMENT:
            raise Hazard(f"a bulk copy from byte {offset} of {memory.name}, no multiple of {ALIGNMENT}")
        offsets, inside = tensor.places(start)
        parts = inside.reshape(-1, CHUNK // tensor.size)
        kept = parts.any(axis=1)  # what lies outside may hold anything
        chunks = chunk_offsets(offset, tensor.bytes, tensor.swizzle)[kept]
        read = g.access(np.full(len(chunks), warp, np.int32), agent=own.reader, moment=own.groups + 1,
                        is_async_proxy=True)  # fmt: skip
        if len(chunks):
            values = memory.read(chunks, CHUNK, read).reshape(-1, tensor.size)
            yield warp, own, offsets[inside], values[parts[kept].reshape(-1)]


@instruction(*(f"cp.async.bulk.tensor.{axes}d.global.shared::cta" for axes in range(1, 6)))
def store_box(g: Group, m: Any, parts: tuple[str, ...], tensor: TensorMap, *operands: Any) -> None:
    """A box out of shared memory; elements outside of the tensor are dropped."""
    if not {"tile", "bulk_group"} <= set(parts):
        raise unknown(parts)
    for warp, own, offsets, values in boxes_out(g, m, tensor, operands):
        warps = np.full(len(offsets), warp, np.int32)
        write = g.access(warps, agent=own.writer, moment=own.groups + 1)
        tensor.memory.write(offsets, values, write)


def runs_out(g: Group, m: Any, source: Any, size: Any) -> Iterator[tuple[int, int, Stores, np.ndarray]]:
    """The run of bytes that each thread takes out of shared memory: the thread's lane and warp, its stores,
    and the bytes (chunks, bytes of one)."""
    for lane, warp in lanes(g, m):
        own = stores(g, lane)
        own.is_open = True
        memory, start = at(g, of_lane(source, lane))
        offsets = run_offsets(start, int(of_lane(size, lane)))
        warps = np.full(len(offsets), warp, np.int32)
        read = g.access(warps, agent=own.reader, moment=own.groups + 1, is_async_proxy=True)
        yield lane, warp, own, memory.read(offsets, CHUNK, read)


@instruction("cp.async.bulk.global.shared::cta")
def store_run(g: Group, m: Any, parts: tuple[str, ...], to: At, source: Any, size: Any, *policy: Any) -> None:
    """A run of bytes out of shared memory."""
    for lane, warp, own, values in runs_out(g, m, source, size):
        place = of_lane(to, lane)
        write = g.access(np.full(len(values), warp, np.int32), agent=own.writer, moment=own.groups + 1)
        place.memory.write(run_offsets(int(place.offset), len(values) * CHUNK), values, write)


@instruction("cp.async.bulk.commit_group")
def commit(g: Group, m: Any, parts: tuple[str, ...]) -> None:
    """Closes the group of each thread."""
    for lane, _ in lanes(g, m):
        own = stores(g, lane)
        own.groups += 1
        own.is_open = False


@instruction("cp.async.bulk.wait_group")
def wait(g: Group, m: Any, parts: tuple[str, ...], pending: Any) -> None:
    """All but the last ``pending`` groups of each thread are done, or with .read have read their sources."""
    for lane, warp in lanes(g, m):
        own = stores(g, lane)
        done = own.groups - int(pending)
        if done <= 0:
            continue
        own.read = max(own.read, done)
        g.clocks.learn(np.asarray([warp]), own.reader, done)
        if "read" not in parts:
            g.clocks.learn(np.asarray([warp]), own.writer, done)


def check_end(block: Block) -> None:
    """Hazard where a block ends while a bulk store may still read its shared memory."""
    for key, own in block.state.items():
        if isinstance(own, Stores) and (own.is_open or own.read < own.groups):
            raise Hazard(
                f"the block ends while a bulk store of thread {key[2]} may still read its shared memory",  # type: ignore[index]
                remedy="wait for it (cp.async.bulk.wait_group.read 0) at the end",
            )
