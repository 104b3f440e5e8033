"""cp.async: copies from global to shared memory that run on while the warp goes on."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec.backends.cuda.device.moves import EVICTION
from tilec.emulate.group import Group
from tilec.emulate.instructions import mbarriers
from tilec.emulate.instructions.registry import as_bits, instruction, unknown
from tilec.emulate.state.clocks import Snapshot
from tilec.emulate.state.memory import At


def agent(g: Group, warp: int) -> int:
    """Who carries out the copies of a warp."""
    return g.block.cluster.agents.of(("cp.async", warp), f"cp.async of warp {warp}")


def _groups(g: Group, warp: int) -> dict[str, Any]:
    found: dict[str, Any] = g.block.state.setdefault(("copies", warp), {"open": 1, "done": []})
    return found


@instruction("cp.async.ca", "cp.async.cg")
def copy(g: Group, m: Any, parts: tuple[str, ...], to: Any, source: At, size: Any, *more: Any) -> None:
    """``size`` bytes for each lane. A further operand is the count of bytes to read, with zeros behind them,
    or a predicate that says to read none; the last one of a copy with a hint is the policy of the cache."""
    g.clocks.copies = True
    length = int(size)
    more = more[:-1] if "L2::cache_hint" in parts else more
    lanes = np.arange(g.count) if m is None else np.flatnonzero(m)
    if len(lanes) == 0:
        return
    counts = _counts(g, length, more)[lanes]
    rows = np.zeros((len(lanes), length), np.uint8)
    offsets = _all(source.offset, g.count)[lanes]
    for count in np.unique(counts):
        if count <= 0:
            continue
        chosen = counts == count
        access = g.access(g.lane_warps[lanes][chosen])
        part = _read(source, offsets[chosen], int(count), length, access)
        rows[np.flatnonzero(chosen)[:, None], np.arange(int(count))] = part
    memory, places = g.block.window(_all(to, g.count)[lanes])
    for warp in np.unique(g.lane_warps[lanes]):
        own = g.lane_warps[lanes] == warp
        moment = _groups(g, int(warp))["open"]
        g.clocks.ensure()
        made = agent(g, int(warp))
        memory.write(places[own], rows[own], g.access(g.lane_warps[lanes][own], agent=made, moment=moment))


def _counts(g: Group, length: int, more: tuple[Any, ...]) -> np.ndarray:
    """Bytes that each lane reads."""
    given = more[0] if more else length
    if isinstance(given, bool):
        given = 0 if given else length
    if isinstance(given, np.ndarray) and given.dtype == np.bool_:
        return np.where(given, 0, length)
    return as_bits(given, "int32", g.count)


def _all(value: Any, count: int) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value.astype(np.int64, copy=False)
    return np.full(count, value, np.int64)


def _read(source: At, offsets: np.ndarray, count: int, length: int, access: Any) -> np.ndarray:
    if count == length:
        return source.memory.read(offsets, length, access)
    parts = [source.memory.read(offsets + byte, 1, access) for byte in range(count)]
    return np.concatenate(parts, axis=1)


@instruction("createpolicy.fractional", outputs=1)
def policy(g: Group, m: Any, parts: tuple[str, ...]) -> tuple[int]:
    """A policy of the L2 cache, which no result depends on."""
    known = {f"L2::evict_{when}": number for when, number in EVICTION.items()}
    number = next((known[part] for part in parts if part in known), None)
    if number is None:
        raise unknown(parts)
    return (number,)


@instruction("cp.async.commit_group")
def commit(g: Group, m: Any, parts: tuple[str, ...]) -> None:
    """Closes the group of each warp."""
    for warp in g.active_warps(m):
        groups = _groups(g, int(warp))
        groups["done"].append(groups["open"])
        groups["open"] += 1


@instruction("cp.async.wait_group")
def wait_group(g: Group, m: Any, parts: tuple[str, ...], pending: Any) -> None:
    """All but the last ``pending`` groups are done."""
    for warp in g.active_warps(m):
        done = _groups(g, int(warp))["done"]
        known = done[len(done) - 1 - int(pending)] if len(done) > int(pending) else 0
        _learn(g, int(warp), known)


@instruction("cp.async.wait_all")
def wait_all(g: Group, m: Any, parts: tuple[str, ...]) -> None:
    """All copies are done, those of the open group too."""
    for warp in g.active_warps(m):
        groups = _groups(g, int(warp))
        _learn(g, int(warp), groups["open"])
        groups["open"] += 1


def _learn(g: Group, warp: int, moment: int) -> None:
    if moment:
        found = agent(g, warp)
        g.clocks.ensure()
        g.clocks.learn(np.asarray([warp]), found, moment)


@instruction("cp.async.mbarrier.arrive.noinc")
def arrive_landed(g: Group, m: Any, parts: tuple[str, ...], address: Any) -> None:
    """Each lane arrives when its copies so far are done. Who waits sees those, and not what the warp has
    stored since its last arrival."""
    landed: dict[int, Snapshot] = {}
    for warp in g.active_warps(m).tolist():
        groups, made = _groups(g, warp), agent(g, warp)
        g.clocks.ensure()
        seen, *others = (part.copy() for part in g.clocks.snapshot(np.asarray([warp])))
        seen[warp] -= 1
        seen[made] = max(seen[made], groups["open"])
        groups["open"] += 1
        landed[warp] = (seen, *others)
    for lane, warp in mbarriers.lanes(g, m):
        found = mbarriers.find(g, mbarriers.of_lane(address, lane), warp)
        found.arrive(landed[warp], 1)
        found.settle(g.clocks)
