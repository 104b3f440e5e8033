"""mbarriers: arrivals and bytes that a phase waits for, and waits by the parity of phases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec.emulate.group import Group
from tilec.emulate.instructions.registry import Instruction, instruction, unknown
from tilec.emulate.state.clocks import Clocks, Hazard, Snapshot, merged
from tilec.emulate.state.memory import At, Memory

_BYTES = 8


@dataclass
class Barrier:
    """An mbarrier: it has completed ``phase`` phases; the one under way still waits for ``pending`` of
    ``count`` arrivals and for ``bytes`` bytes. ``agent`` stands for the copies that it counts. ``passed``: by
    warp whose wait has found the phase under way, moments of warps behind it; one of them tells. ``told``:
    warps that know of its initialisation, and of nothing else that the warp which did it has done."""

    name: str
    count: int
    agent: int
    warp: int
    moment: int
    pending: int = 0
    bytes: int = 0
    phase: int = 0
    is_fenced: bool = False
    known: Snapshot | None = None
    released: list[Snapshot] = field(default_factory=list)
    passed: dict[int, dict[int, int]] = field(default_factory=dict)
    told: set[int] = field(default_factory=set)

    def arrive(self, known: Snapshot, count: int) -> None:
        """``count`` arrivals of those who know ``known``."""
        if count > self.pending:
            raise Hazard(
                f"{self.name} gets {count} arrivals, its phase waits for {self.pending} more of {self.count}",
                remedy="its count must be the number of arrivals in a phase",
            )
        self.known = merged(self.known, known)
        self.pending -= count

    def settle(self, clocks: Clocks) -> None:
        """Ends the phase when nothing is missing."""
        if self.pending or self.bytes:
            return
        assert self.known is not None
        self._check_waits(self.known)
        clocks.ensure()
        done = np.zeros_like(clocks.now)
        done[self.agent] = self.phase + 1
        self.released.append(merged(self.known, (done,) * len(self.known)))
        self.known, self.pending = None, self.count
        self.phase += 1
        self.passed.clear()

    def _check_waits(self, known: Snapshot) -> None:
        """The phase may end when all that have found it under way are known to have passed: a warp that looks
        later finds the next one, of the parity that it waits to be over."""
        over = np.maximum(known[0], known[3])
        for warp, moments in self.passed.items():
            if any(over[other] >= moment for other, moment in moments.items()):
                continue
            raise Hazard(
                f"phase {self.phase} of {self.name} ends with nothing that orders it behind the wait of warp"
                f" {warp} for the phase before: if that warp came later, it would wait on",
                remedy="arrivals of a phase must come behind all waits for the one before",
            )

    def let_pass(self, clocks: Clocks, warps: np.ndarray) -> None:
        """Warps have found the phase that they waited for over."""
        if self.released:
            clocks.join(warps, self.released[-1])
        for warp in warps.tolist():
            self.passed[warp] = {warp: int(clocks.seen[warp, warp])}
        clocks.tick(warps)

    def pass_together(self, warps: dict[int, int]) -> None:
        """None of ``warps`` comes to its moment before all of them have passed."""
        for warp in self.passed.keys() & warps.keys():
            self.passed[warp] = warps | self.passed[warp]

    @property
    def text(self) -> str:
        """What the phase under way still waits for."""
        return f"{self.pending} of {self.count} arrivals and {self.bytes} bytes missing in phase {self.phase}"


def pass_together(g: Group, warps: np.ndarray) -> None:
    """What follows in any of ``warps`` comes behind the waits of all so far: they have met in an instruction
    that orders nothing else."""
    g.clocks.tick(warps)
    moments = {int(warp): int(g.clocks.seen[warp, warp]) for warp in warps}
    for barrier in g.block.shared.barriers.values():
        barrier.pass_together(moments)


def at(g: Group, address: Any) -> tuple[Memory, int]:
    """The memory and the offset of one address."""
    if isinstance(address, At):
        return address.memory, int(address.offset)
    memory, offset = g.block.window(int(address))
    return memory, int(offset)


def find(g: Group, address: Any, warp: int) -> Barrier:
    """The mbarrier at an address, initialised as far as ``warp`` knows."""
    memory, offset = at(g, address)
    found: Barrier | None = memory.barriers.get(offset)
    if found is None:
        raise Hazard(f"there is no mbarrier at byte {offset} of {memory.name}", remedy="mbarrier.init first")
    if g.clocks.seen[warp, found.warp] < found.moment and warp not in found.told:
        raise Hazard(
            f"warp {warp} uses {found.name}, which warp {found.warp} has initialised with nothing that "
            "orders the two",
            remedy="a barrier is missing behind mbarrier.init",
        )
    return found


def lanes(g: Group, m: Any) -> Iterator[tuple[int, int]]:
    """The lanes that run, with their warps."""
    chosen = range(g.count) if m is None else np.flatnonzero(m).tolist()
    for lane in chosen:
        yield lane, int(g.lane_warps[lane])


def of_lane(value: Any, lane: int) -> Any:
    """The value of one lane."""
    if isinstance(value, At):
        return At(value.memory, of_lane(value.offset, lane))
    return value[lane].item() if isinstance(value, np.ndarray) else value


@instruction("mbarrier.init")
def init(g: Group, m: Any, parts: tuple[str, ...], address: Any, count: Any) -> None:
    """A barrier whose phases take ``count`` arrivals."""
    for lane, warp in lanes(g, m):
        memory, offset = at(g, of_lane(address, lane))
        if offset % _BYTES:
            raise Hazard(f"an mbarrier at byte {offset}, which is no multiple of {_BYTES}")
        arrivals = int(of_lane(count, lane))
        if arrivals < 1:
            raise Hazard(f"an mbarrier for {arrivals} arrivals")
        name = f"the mbarrier at byte {offset} of {memory.name}"
        agent = g.block.cluster.agents.of(("mbarrier", memory, offset), f"a bulk copy to {name}")
        g.clocks.ensure()
        memory.reserve(offset, _BYTES)
        moment = int(g.clocks.seen[warp, warp])
        before = memory.barriers.get(offset)
        phase = 0 if before is None else before.phase
        memory.barriers[offset] = Barrier(name, arrivals, agent, warp, moment, arrivals, phase=0)
        if phase:
            raise Hazard(f"{name} is initialised again while it is in use", remedy="mbarrier.inval first")


@instruction("mbarrier.inval")
def invalidate(g: Group, m: Any, parts: tuple[str, ...], address: Any) -> None:
    """The memory of a barrier becomes plain memory again."""
    for lane, warp in lanes(g, m):
        find(g, of_lane(address, lane), warp)
        memory, offset = at(g, of_lane(address, lane))
        del memory.barriers[offset], memory.reserved[offset]


def fence_inits(g: Group, m: Any) -> None:
    """Barriers that these warps have initialised are visible to asynchronous copies."""
    warps = set(g.active_warps(m).tolist())
    for block in g.block.cluster.blocks:
        for barrier in block.shared.barriers.values():
            barrier.is_fenced |= barrier.warp in warps


def fenced_inits(g: Group, warps: np.ndarray) -> list[Barrier]:
    """The barriers of a cluster that ``warps`` have initialised, with a fence behind."""
    found = (barrier for block in g.block.cluster.blocks for barrier in block.shared.barriers.values())
    return [barrier for barrier in found if barrier.is_fenced and barrier.warp in warps]


def _outputs(each: Instruction) -> int:
    """A state unless it is thrown away (_) or the barrier is another block's."""
    return 0 if each.sinks or "shared::cluster" in each.parts else 1


@instruction("mbarrier.arrive", outputs=_outputs)
def arrive(g: Group, m: Any, parts: tuple[str, ...], address: Any, count: Any = 1) -> tuple[Any, ...]:
    """Each lane arrives ``count`` times; with .expect_tx once, and announces ``count`` bytes."""
    if "noComplete" in parts:
        raise unknown(parts)
    phase = 0
    for lane, warp in lanes(g, m):
        found = find(g, of_lane(address, lane), warp)
        phase = found.phase
        if "expect_tx" in parts:
            found.bytes += int(of_lane(count, lane))
        number = 1 if "expect_tx" in parts else int(of_lane(count, lane))
        found.arrive(g.clocks.snapshot(np.asarray([warp])), number)
        found.settle(g.clocks)
    g.clocks.tick(g.active_warps(m))
    return (phase,)


@instruction("mbarrier.expect_tx")
def expect(g: Group, m: Any, parts: tuple[str, ...], address: Any, count: Any) -> None:
    """Announces bytes."""
    for lane, warp in lanes(g, m):
        found = find(g, of_lane(address, lane), warp)
        found.bytes += int(of_lane(count, lane))
        found.settle(g.clocks)


@instruction("mbarrier.complete_tx")
def complete(g: Group, m: Any, parts: tuple[str, ...], address: Any, count: Any) -> None:
    """Counts bytes as arrived. Relaxed: who waits for them sees what the warp knew at its last fence."""
    for lane, warp in lanes(g, m):
        found = find(g, of_lane(address, lane), warp)
        found.bytes -= int(of_lane(count, lane))
        if warp in g.clocks.fenced:
            found.known = merged(found.known, g.clocks.fenced[warp])
        found.settle(g.clocks)


@instruction("mbarrier.try_wait", outputs=1, waits=True)
def wait(g: Group, m: Any, parts: tuple[str, ...], address: Any, parity: Any, *time: Any) -> Iterator[str]:
    """Waits until the phase of a parity is over. A wait that may give up does not give up here."""
    if "parity" not in parts:
        raise unknown(parts)
    place, bit = g.uniform(address, m), int(g.uniform(parity, m))
    if bit not in (0, 1):
        raise Hazard(f"a wait for parity {bit}")
    warps = g.active_warps(m)
    barrier = find(g, place, int(warps[0]))
    for warp in warps:
        find(g, place, int(warp))
    while barrier.phase & 1 == bit:
        yield f"parity {bit} of {barrier.name} ({barrier.text})"
    barrier.let_pass(g.clocks, warps)
    return (True,)  # type: ignore[return-value]


@instruction("mbarrier.test_wait", outputs=1)
def test(g: Group, m: Any, parts: tuple[str, ...], address: Any, parity: Any) -> tuple[Any, ...]:
    """Whether the phase of a parity is over."""
    if "parity" not in parts:
        raise unknown(parts)
    warps = g.active_warps(m)
    barrier = find(g, g.uniform(address, m), int(warps[0]))
    over = barrier.phase & 1 != int(g.uniform(parity, m))
    if over:
        barrier.let_pass(g.clocks, warps)
    return (over,)
