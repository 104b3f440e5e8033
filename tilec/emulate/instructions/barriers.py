"""Barriers of a block: __syncthreads, named barriers, fences, setmaxnreg."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec.emulate.group import WARP, Group
from tilec.emulate.instructions.mbarriers import fence_inits
from tilec.emulate.instructions.registry import function, instruction
from tilec.emulate.state.clocks import Hazard, Snapshot, merged

_BARRIERS = 16


@dataclass
class Named:
    """One named barrier: threads that it waits for, those that have come, what they know. ``came``: when each
    warp came in the round under way; ``before``: by warp, the same of the last round that it was part of."""

    count: int = 0
    arrived: list[int] = field(default_factory=list)
    known: Snapshot | None = None
    released: list[Snapshot] = field(default_factory=list)
    came: dict[int, int] = field(default_factory=dict)
    before: dict[int, dict[int, int]] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """How often it has opened."""
        return len(self.released)


def barrier(g: Group, number: int) -> Named:
    """A barrier of the group's block."""
    if not 0 <= number < _BARRIERS:
        raise Hazard(f"barrier {number}; a block has {_BARRIERS}")
    found: Named = g.block.state.setdefault(("barrier", number), Named())
    return found


def arrive(g: Group, warps: np.ndarray, number: int, count: int) -> int:
    """Warps come to a barrier; the round that they are in."""
    if count % WARP or count == 0:
        raise Hazard(f"barrier {number} for {count} threads, which is no multiple of {WARP}")
    found = barrier(g, number)
    if found.arrived and found.count != count:
        raise Hazard(
            f"barrier {number} is used with {count} threads while warps wait at it with {found.count}",
            remedy="give every use of one barrier the same count, or another barrier",
        )
    again = set(found.arrived) & {int(warp) for warp in warps}
    if again:
        raise Hazard(f"warp {min(again)} comes to barrier {number} twice before it opens")
    _check_rounds(g, warps, number, found)
    found.count = count
    found.arrived += [int(warp) for warp in warps]
    found.known = merged(found.known, g.clocks.snapshot(warps))
    found.came |= {int(warp): int(g.clocks.seen[warp, warp]) for warp in warps}
    g.clocks.tick(warps)
    here = len(found.arrived) * WARP
    if here > count:
        raise Hazard(
            f"barrier {number} is for {count} threads, but {here} have come",
            remedy="the count must be that of the threads that use it",
        )
    round_ = found.rounds
    if here == count:
        found.released.append(found.known)
        found.before |= dict.fromkeys(found.came, found.came)
        found.arrived, found.known, found.came = [], None, {}
    return round_


def _check_rounds(g: Group, warps: np.ndarray, number: int, found: Named) -> None:
    """A warp that has come and gone on may come again when all others of that round are known to have come:
    in another order of warps it would count twice in one round."""
    for warp in warps.tolist():
        for other, moment in found.before.get(warp, {}).items():
            if g.clocks.seen[warp, other] < moment:
                raise Hazard(
                    f"warp {warp} comes to barrier {number} again with nothing that orders it behind warp"
                    f" {other} in the round before: if that warp came later, this one would count twice",
                    remedy="wait for something that follows the barrier before it is used again",
                )


def sync(g: Group, m: Any, number: int, count: int) -> Iterator[str]:
    """Comes to a barrier and waits until it opens."""
    warps = g.whole_warps(m, f"barrier {number}")
    round_ = arrive(g, warps, number, count)
    found = barrier(g, number)
    while found.rounds <= round_:
        yield f"barrier {number}: {len(found.arrived) * WARP} of {found.count} threads are there"
    g.clocks.join(warps, found.released[round_])


@function("__syncthreads", dtype="void", waits=True)
def syncthreads(g: Group, m: Any) -> Iterator[str]:
    """All threads of the block."""
    yield from sync(g, m, 0, g.block.warps * WARP)


@instruction("bar.sync", "barrier.sync", "bar.cta.sync", "barrier.cta.sync", waits=True)
def bar_sync(g: Group, m: Any, parts: tuple[str, ...], number: Any, count: Any = None) -> Iterator[str]:
    """A named barrier; without a count it is for the whole block."""
    chosen = int(g.uniform(number, m))
    threads = g.block.warps * WARP if count is None else int(g.uniform(count, m))
    yield from sync(g, m, chosen, threads)


@instruction("bar.arrive", "barrier.arrive", "bar.cta.arrive", "barrier.cta.arrive")
def bar_arrive(g: Group, m: Any, parts: tuple[str, ...], number: Any, count: Any) -> None:
    """Comes to a barrier and goes on."""
    for warp in g.whole_warps(m, "bar.arrive"):
        lanes = np.flatnonzero(g.lane_warps == warp)
        chosen = number[lanes[0]] if isinstance(number, np.ndarray) else number
        arrive(g, np.asarray([warp]), int(chosen), int(g.uniform(count, m)))


@instruction("fence", "membar")
def fence(g: Group, m: Any, parts: tuple[str, ...]) -> None:
    """Orders a thread's own accesses; what others know of them they learn at a barrier. Fences between
    proxies make what the warp knows visible to the asynchronous one, others to those who see a relaxed
    operation that follows."""
    warps = g.active_warps(m)
    if "mbarrier_init" in parts or "proxy" in parts:
        fence_inits(g, m)
    if "proxy" in parts:
        g.clocks.fence(warps)
        g.clocks.tick(warps)
    if not {"mbarrier_init", "proxy"} & set(parts):
        g.clocks.release(warps)


@function("__threadfence", "__threadfence_block", "__threadfence_system", dtype="void")
def threadfence(g: Group, m: Any) -> None:
    """Orders a thread's own accesses."""
    g.clocks.release(g.active_warps(m))


@function("__nanosleep", dtype="void")
def nanosleep(g: Group, m: Any, *time: Any) -> None:
    """Does nothing."""


@instruction("nanosleep")
def nanosleep_(g: Group, m: Any, parts: tuple[str, ...], *time: Any) -> None:
    """Does nothing."""
