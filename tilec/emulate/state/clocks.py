"""Vector clocks: what each warp knows to be over.

Agents are what acts in order: every warp, and what works in the background for one (asynchronous copies,
products, stores) or for one mbarrier. ``Clocks.seen[w, a]`` is the latest moment of agent ``a`` that warp
``w`` has synchronised with, ``Clocks.proxied`` the same for what a proxy fence has made visible to the
asynchronous proxy, ``Clocks.loaded`` for loads that are known to be done: those in front of a proxy fence of
their own warp. ``Clocks.passed`` is for moments that are over as what a warp sent behind them has come, which
says nothing of memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

#: What agents know: seen, proxied, loaded and passed (`Clocks`).
Snapshot = tuple[np.ndarray, ...]
#: What atomic operations tell other blocks: moments of agents, by the number of their clocks and their own.
Told = dict[tuple[int, int], int]
_NUMBERS = count()


class Hazard(Exception):
    """What is wrong with an access, to be told together with its place."""

    def __init__(self, what: str, why: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what, self.why, self.remedy = what, why, remedy


@dataclass
class Agents:
    """Names of agents. The first ``warps`` are the warps themselves."""

    warps: int
    names: list[str] = field(default_factory=list)
    _known: dict[object, int] = field(default_factory=dict)
    _others: dict[int, tuple[int, int]] = field(default_factory=dict)

    def of_others(self, key: tuple[int, int]) -> int:
        """The number of an agent of other clocks."""
        agent = self.of(("other", *key), f"warp {key[1]} of another block")
        self._others[agent] = key
        return agent

    def known(self, key: tuple[int, int]) -> int | None:
        """The same; None of one that nothing has been told of."""
        return self._known.get(("other", *key))

    def other(self, agent: int) -> tuple[int, int] | None:
        """Whose agent one is; None for one of these clocks."""
        return self._others.get(agent)

    def of(self, key: object, name: str) -> int:
        """The number of an agent in the background."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.names)
            self.names.append(name)
        return found


class Clocks:
    """The vector clocks of the warps of one cluster."""

    def __init__(self, agents: Agents) -> None:
        self.agents, self.number = agents, next(_NUMBERS)
        count = agents.warps
        self.seen = np.zeros((count, max(64, 4 * count)), np.int32)
        self.proxied = np.zeros_like(self.seen)
        for warp in range(count):
            self.seen[warp, warp] = self.proxied[warp, warp] = 1
        self.proxied[np.arange(count), np.arange(count)] = 0
        self.loaded = np.zeros_like(self.seen)
        self.passed = np.zeros_like(self.seen)
        self.now = np.zeros(self.seen.shape[1], np.int32)
        #: What each warp knew at its last fence: relaxed operations that follow tell it to others.
        self.fenced: dict[int, Snapshot] = {}
        #: What relaxed operations have told each warp since its last fence.
        self.heard: dict[int, Told] = {}
        #: Whether threads have started cp.async, behind which loads of others may wait their turn.
        self.copies = False
        #: The agent that stands for earlier launches, where this one may have begun before they ended.
        self.earlier: int | None = None

    def ensure(self) -> None:
        """Room for agents made since."""
        while len(self.agents.names) > self.seen.shape[1]:
            self.seen = np.pad(self.seen, ((0, 0), (0, 64)))
            self.proxied = np.pad(self.proxied, ((0, 0), (0, 64)))
            self.loaded = np.pad(self.loaded, ((0, 0), (0, 64)))
            self.passed = np.pad(self.passed, ((0, 0), (0, 64)))
            self.now = np.pad(self.now, (0, 64))

    def snapshot(self, warps: Any) -> Snapshot:
        """What a set of warps knows together."""
        known = (self.seen, self.proxied, self.loaded, self.passed)
        return tuple(each[warps].max(axis=0) for each in known)

    def sent(self, warp: int) -> Snapshot:
        """What those know who get what a warp sends: what is over."""
        over = np.maximum(self.seen[warp], self.passed[warp])
        nothing = np.zeros_like(over)
        return nothing, nothing, nothing, over

    def join(self, warps: Any, known: Snapshot) -> None:
        """Warps learn what ``known`` says."""
        self.ensure()
        own = (self.seen, self.proxied, self.loaded, self.passed)
        for mine, new in zip(own, known, strict=True):
            width = len(new)
            mine[warps, :width] = np.maximum(mine[warps, :width], new)

    def tick(self, warps: np.ndarray) -> None:
        """A new moment for each of the warps: what they do next is not covered by what they have released."""
        self.seen[warps, warps] += 1

    def learn(self, warps: Any, agent: int, moment: int) -> None:
        """Warps know that ``agent`` is done up to ``moment``."""
        self.seen[warps, agent] = np.maximum(self.seen[warps, agent], moment)

    def advance(self, agent: int) -> int:
        """The next moment of an agent in the background."""
        self.ensure()
        self.now[agent] += 1
        return int(self.now[agent])

    def tells(self, warp: int) -> Told:
        """What a relaxed operation of a warp tells those who see it."""
        known = self.fenced.get(warp)
        moments = enumerate(known[0].tolist()) if known else ()
        return {self.agents.other(agent) or (self.number, agent): each for agent, each in moments if each}

    def hear(self, warp: int, told: Told) -> None:
        """A relaxed operation tells a warp something, which it knows behind its next fence."""
        heard = self.heard.setdefault(warp, {})
        heard.update({key: max(moment, heard.get(key, 0)) for key, moment in told.items()})

    def _learn_heard(self, warp: int) -> None:
        for (number, agent), moment in self.heard.pop(warp, {}).items():
            own = agent if number == self.number else self.agents.of_others((number, agent))
            self.ensure()
            self.learn(warp, own, moment)

    def release(self, warps: np.ndarray) -> None:
        """A fence between threads: the warps know what relaxed operations have told them, and those that
        follow tell what the warps know now."""
        for warp in warps.tolist():
            self._learn_heard(warp)
        self.fenced |= {int(warp): self.snapshot(np.asarray([warp])) for warp in warps}
        self.tick(warps)

    def fence(self, warps: Any) -> None:
        """A proxy fence: what the warps know is visible to the asynchronous proxy, their loads are done."""
        self.proxied[warps] = self.seen[warps]
        self.loaded[warps, warps] = self.seen[warps, warps]


def merged(left: Snapshot | None, right: Snapshot) -> Snapshot:
    """What two snapshots know together."""
    return right if left is None else tuple(map(_later, left, right))


def _later(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The later moment of each agent; those that one side has not met are at 0 there."""
    short, long = sorted((left, right), key=len)
    made: np.ndarray = long.copy()
    np.maximum(made[: len(short)], short, out=made[: len(short)])
    return made
