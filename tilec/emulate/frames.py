"""Control flow of groups: branches that lanes take apart, loops that lanes leave at different trips."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilec.emulate.group import WARP, Fork, Group, of_lanes

Code = Callable[[Group, Any], Any]


def _and_not(mask: np.ndarray | None, gone: np.ndarray) -> np.ndarray:
    return ~gone if mask is None else mask & ~gone


def _part_warps(taken: np.ndarray, left: np.ndarray) -> None:
    """Raises Fork where some warps take a branch and others leave it, or do both."""
    some = taken.reshape(-1, WARP).any(axis=1)
    rest = left.reshape(-1, WARP).any(axis=1)
    kinds = some * 2 + rest
    parts = [np.flatnonzero(np.repeat(kinds == kind, WARP)) for kind in np.unique(kinds)]
    if len(parts) > 1:
        raise Fork(parts)


@dataclass
class BranchFrame:
    """An open If: the mask outside, and the lanes that still have to run the other side."""

    outside: np.ndarray | None
    other: np.ndarray | None = None

    def part(self, lanes: np.ndarray) -> BranchFrame:
        """For some of the lanes."""
        return BranchFrame(of_lanes(self.outside, lanes), of_lanes(self.other, lanes))

    def drop(self, gone: np.ndarray) -> None:
        """These lanes have left the loop around."""
        self.outside = _and_not(self.outside, gone)
        if self.other is not None:
            self.other = self.other & ~gone


@dataclass
class LoopFrame:
    """An open loop: the mask outside, the lanes of this trip (``inside``, those that broke being gone), the
    trip number and the count of trips where known."""

    outside: np.ndarray | None
    inside: np.ndarray | None
    trip: int = 0
    low: Any = 0
    count: Any = None

    def part(self, lanes: np.ndarray) -> LoopFrame:
        """For some of the lanes."""
        outside, inside = of_lanes(self.outside, lanes), of_lanes(self.inside, lanes)
        return LoopFrame(outside, inside, self.trip, of_lanes(self.low, lanes), of_lanes(self.count, lanes))


@dataclass(frozen=True)
class Run:
    """Straight code."""

    code: Code

    def run(self, group: Group) -> None:
        """Runs it."""
        self.code(group, group.mask)
        group.pc += 1


@dataclass(frozen=True)
class Wait:
    """Code that may have to wait: a generator."""

    code: Code

    def run(self, group: Group) -> None:
        """Starts it."""
        group.waiting = self.code(group, group.mask)


@dataclass
class If:
    """The head of a branch. ``blocks``: a side may wait, so warps that differ go on apart."""

    cond: Code
    blocks: bool
    orelse: int = 0

    def run(self, group: Group) -> None:
        """Takes one side, or opens both."""
        mask = group.mask
        cond = self.cond(group, mask)
        group.taint.check(mask, "decides a branch")
        if isinstance(cond, np.ndarray):
            taken = cond if mask is None else cond & mask
            left = ~cond if mask is None else mask & ~cond
            if not left.any():
                cond = True
            elif not taken.any():
                cond = False
            else:
                self._split(group, taken, left)
                return
        group.frames.append(BranchFrame(mask))
        group.pc = group.pc + 1 if cond else self.orelse + 1

    def _split(self, group: Group, taken: np.ndarray, left: np.ndarray) -> None:
        if self.blocks:
            _part_warps(taken, left)
        group.frames.append(BranchFrame(group.mask, left))
        group.mask = taken
        group.pc += 1


@dataclass
class Else:
    """The end of a first side."""

    end: int = 0

    def run(self, group: Group) -> None:
        """Goes to the other side where lanes wait for it."""
        frame = group.frames[-1]
        if frame.other is not None and frame.other.any():
            group.mask, frame.other = frame.other, None
            group.pc += 1
        else:
            group.pc = self.end


@dataclass
class EndIf:
    """The end of a branch; ``after`` is where lanes that have all left go on."""

    after: int = 0

    def run(self, group: Group) -> None:
        """Goes on with all lanes that are still there."""
        frame = group.frames.pop()
        group.mask = frame.outside
        gone = group.mask is not None and not group.mask.any()
        group.pc = self.after if gone else group.pc + 1


@dataclass
class LoopStart:
    """The head of a loop of ``count`` trips from ``low`` on, or of an endless one (``count`` None)."""

    low: Code | None
    count: Code | None

    def run(self, group: Group) -> None:
        """Opens the loop."""
        mask = group.mask
        low = 0 if self.low is None else _agreed(self.low(group, mask), mask)
        count = None if self.count is None else _agreed(self.count(group, mask), mask)
        group.frames.append(LoopFrame(mask, mask, 0, low, count))
        group.pc += 1


def _agreed(value: Any, mask: np.ndarray | None) -> Any:
    """A number where all lanes agree."""
    if not isinstance(value, np.ndarray):
        return value
    lanes = value if mask is None else value[mask]
    return lanes[0].item() if len(lanes) and (lanes == lanes[0]).all() else value


@dataclass
class LoopTest:
    """The test of a trip: ``var`` is the slot of the loop variable, ``cond`` a While's condition."""

    var: int
    cond: Code | None
    blocks: bool
    end: int = 0

    def run(self, group: Group) -> None:
        """Enters a trip, or leaves the loop."""
        frame: LoopFrame = group.frames[-1]
        group.mask = frame.inside
        if frame.inside is not None and not frame.inside.any():
            self._leave(group)
            return
        goes = frame.trip < frame.count if self.cond is None else self._holds(group)
        if isinstance(goes, np.ndarray):
            goes = self._narrowed(group, frame, goes)
        if not goes:
            self._leave(group)
            return
        if self.cond is None:
            group.env[self.var] = frame.low + frame.trip
        group.mask = frame.inside
        group.pc += 1

    def _holds(self, group: Group) -> Any:
        assert self.cond is not None
        goes = self.cond(group, group.mask)
        group.taint.check(group.mask, "decides whether a loop goes on")
        return goes

    def _narrowed(self, group: Group, frame: LoopFrame, goes: np.ndarray) -> bool:
        taken = goes if frame.inside is None else goes & frame.inside
        left = ~goes if frame.inside is None else frame.inside & ~goes
        if not taken.any():
            return False
        if left.any():
            if self.blocks:
                _part_warps(taken, left)
            frame.inside = taken
        return True

    def _leave(self, group: Group) -> None:
        frame = group.frames.pop()
        group.mask = frame.outside
        group.pc = self.end


@dataclass
class LoopNext:
    """The end of a trip."""

    test: int

    def run(self, group: Group) -> None:
        """Goes to the next trip."""
        frame = group.frames[-1]
        frame.trip += 1
        group.mask = frame.inside
        group.pc = self.test


@dataclass
class Leave:
    """break or continue: the lanes that run it skip what is left of the trip; ``after`` is the end of the
    branch around it."""

    breaks: bool
    after: int = 0

    def run(self, group: Group) -> None:
        """Takes the lanes out of every branch up to the loop."""
        gone = np.ones(group.count, np.bool_) if group.mask is None else group.mask
        for frame in reversed(group.frames):
            if isinstance(frame, LoopFrame):
                if self.breaks:
                    frame.inside = _and_not(frame.inside, gone)
                break
            frame.drop(gone)
        group.mask = np.zeros(group.count, np.bool_)
        group.pc = self.after
