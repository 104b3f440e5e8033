"""Clusters of blocks: their barrier, their shared memory; registers that warps hand on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tilec.emulate.group import WARP, Block, Cluster, Group
from tilec.emulate.instructions.mbarriers import Barrier, fenced_inits
from tilec.emulate.instructions.registry import instruction
from tilec.emulate.state.clocks import Hazard, Snapshot, merged


@dataclass
class Rounds:
    """The barrier of a cluster: the warps that have come, what they know, the mbarriers that they have set
    up, and what past rounds knew."""

    arrived: set[int] = field(default_factory=set)
    known: Snapshot | None = None
    opened: list[Barrier] = field(default_factory=list)
    released: list[tuple[Snapshot | None, list[Barrier]]] = field(default_factory=list)
    rounds: dict[int, int] = field(default_factory=dict)


def _rounds(cluster: Cluster) -> Rounds:
    found: Rounds = cluster.barriers.setdefault("cluster", Rounds())
    return found


def settle(cluster: Cluster) -> None:
    """Ends the round when all warps that have not ended have come."""
    found = _rounds(cluster)
    alive = sum(block.warps for block in cluster.blocks) - len(cluster.ended)
    if found.arrived and len(found.arrived - cluster.ended) >= alive:
        found.released.append((found.known, found.opened))
        found.arrived, found.known, found.opened = set(), None, []


@instruction("barrier.cluster.arrive")
def arrive(g: Group, m: Any, parts: tuple[str, ...]) -> None:
    """Comes to the cluster's barrier; .relaxed tells the others of fenced mbarriers alone."""
    found = _rounds(g.block.cluster)
    warps = g.whole_warps(m, "barrier.cluster")
    again = found.arrived & {int(warp) for warp in warps}
    if again:
        raise Hazard(f"warp {min(again)} comes to the barrier of the cluster twice without a wait")
    found.arrived |= {int(warp) for warp in warps}
    for warp in warps:
        found.rounds[int(warp)] = len(found.released)
    found.opened += fenced_inits(g, warps)
    if "relaxed" not in parts:
        found.known = merged(found.known, g.clocks.snapshot(warps))
        g.clocks.tick(warps)
    settle(g.block.cluster)


@instruction("barrier.cluster.wait", waits=True)
def wait(g: Group, m: Any, parts: tuple[str, ...]) -> Iterator[str]:
    """Waits until all warps of the cluster have come."""
    found = _rounds(g.block.cluster)
    warps = g.whole_warps(m, "barrier.cluster")
    missing = [int(warp) for warp in warps if int(warp) not in found.rounds]
    if missing:
        raise Hazard(f"warp {missing[0]} waits for the barrier of the cluster without having come to it")
    round_ = max(found.rounds[int(warp)] for warp in warps)
    while len(found.released) <= round_:
        yield f"the barrier of the cluster: {len(found.arrived)} warps have come"
    known, opened = found.released[round_]
    if known is not None:
        g.clocks.join(warps, known)
    for barrier in opened:
        barrier.told.update(warps.tolist())
    for warp in warps:
        found.rounds.pop(int(warp), None)


@instruction("mapa", outputs=1)
def mapa(g: Group, m: Any, parts: tuple[str, ...], address: Any, rank: Any) -> tuple[Any, ...]:
    """The address of the same place in another block of the cluster."""
    return (Block.mapped(address, rank),)


# ---- registers ----


@dataclass
class _Pool:
    """Registers of a block that no warp holds, and those that each warp has."""

    free: int = 0
    held: dict[int, int] = field(default_factory=dict)


def _pool(g: Group) -> _Pool:
    found: _Pool = g.block.state.setdefault("registers", _Pool())
    return found


def _asked(g: Group, count: Any) -> int:
    asked = int(count)
    if asked % 8 or not 24 <= asked <= 256:
        raise Hazard(f"setmaxnreg to {asked}: multiples of 8 from 24 to 256")
    if not g.block.registers:
        raise Hazard("setmaxnreg in a launch that does not say what its threads have")
    return asked


@instruction("setmaxnreg.dec")
def give(g: Group, m: Any, parts: tuple[str, ...], count: Any) -> None:
    """Gives registers back."""
    asked, pool = _asked(g, count), _pool(g)
    for warp in g.whole_warps(m, "setmaxnreg"):
        held = pool.held.get(int(warp), g.block.registers)
        if asked > held:
            raise Hazard(f"setmaxnreg.dec to {asked} in warp {int(warp)}, which has {held}")
        pool.held[int(warp)] = asked
        pool.free += (held - asked) * WARP


@instruction("setmaxnreg.inc", waits=True)
def take(g: Group, m: Any, parts: tuple[str, ...], count: Any) -> Iterator[str]:
    """Takes registers, waiting until there are enough."""
    asked, pool = _asked(g, count), _pool(g)
    for warp in g.whole_warps(m, "setmaxnreg"):
        held = pool.held.get(int(warp), g.block.registers)
        if asked < held:
            raise Hazard(f"setmaxnreg.inc to {asked} in warp {int(warp)}, which has {held}")
        while pool.free < (asked - held) * WARP:
            yield f"{(asked - held) * WARP} registers, {pool.free} are free"
        pool.free -= (asked - held) * WARP
        pool.held[int(warp)] = asked
