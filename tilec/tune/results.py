"""What came of a problem: a row for each config, finals measured in turns, and who won."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilec.tune.planning import Planned
from tilec.tune.problems import Problem

OK, WRONG, UNCOMPILED, REFUSED, TIMEOUT, CRASH, LOST = (
    "ok", "wrong result", "not compiled", "refused", "timeout", "crash", "device error",
)  # fmt: skip
_OUTCOMES = {"wrong": WRONG, "error": REFUSED, "timeout": TIMEOUT, "crash": CRASH, "lost": LOST}
#: A gain below this share is none, whatever the noise was.
_LEAST_GAIN = 0.005
#: Configs within this factor of the best one are measured again in turns, and at most so many.
NEAR, FINALISTS = 1.25, 5


@dataclass(frozen=True)
class Row:
    """One config: its ``outcome``, and where that is `OK`, microseconds of each point. ``seconds``: when it
    was known, from the start. ``detail``: why it failed, or what is known of its code."""

    number: int
    outcome: str
    points: tuple[float, ...] = ()
    detail: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Final:
    """Microseconds of a config measured in turns with others; ``noise`` is a share of it."""

    score: float
    noise: float
    points: tuple[float, ...] = ()


@dataclass(frozen=True)
class Result:
    """``rows``: the last one of every config that was tried. ``finals`` by number; ``winner``: the number of
    the config to use, None where none works. ``device``: what the device said of itself."""

    planned: Planned
    rows: tuple[Row, ...]
    finals: Mapping[int, Final]
    device: Mapping[str, Any]
    winner: int | None = None
    seconds: float = 0.0
    reused: int = field(default=0)
    compiler: str = ""

    @property
    def problem(self) -> Problem:
        """What was tuned."""
        return self.planned.problem

    @property
    def failures(self) -> dict[str, int]:
        """How many configs failed, by kind."""
        return dict(Counter(row.outcome for row in self.rows if row.outcome != OK).most_common())

    def score(self, number: int) -> float:
        """Microseconds of a config: of the finals where it was in them; infinite where it failed."""
        if number in self.finals:
            return self.finals[number].score
        row = next((row for row in self.rows if row.number == number and row.outcome == OK), None)
        return math.inf if row is None else score(self.problem, row.points)


def row_of(number: int, answer: Mapping[str, Any], seconds: float) -> Row:
    """The row of a worker's answer."""
    if "points" in answer:
        return Row(number, OK, tuple(one["us"] for one in answer["points"]), seconds=seconds)
    key = next((key for key in _OUTCOMES if key in answer), "crash")
    return Row(number, _OUTCOMES[key], detail=str(answer.get(key, "no answer")), seconds=seconds)


def score(problem: Problem, points: Sequence[float]) -> float:
    """One number for the microseconds of all points: the mean over the calls of a model; else the geometric
    mean, to which each point contributes alike."""
    if problem.weighted:
        weights = [point.weight for point in problem.points]
        return sum(w * us for w, us in zip(weights, points, strict=True)) / sum(weights)
    return math.exp(statistics.fmean(math.log(max(us, 1e-9)) for us in points))


def finals_of(problem: Problem, numbers: Sequence[int], answer: Mapping[str, Any]) -> dict[int, Final]:
    """The finals of a worker's answer; none where it failed."""
    found = {}
    for position, number in enumerate(numbers if "points" in answer else ()):
        samples = [point[str(position)] for point in answer["points"]]
        quartiles = tuple(sorted(one)[len(one) // 4] for one in samples)
        noise = max(_spread(one) for one in samples)
        found[number] = Final(score(problem, quartiles), noise, quartiles)
    return found


def _spread(samples: Sequence[float]) -> float:
    """How far the middle of the better half is above the best, as a share: what is worse than that is other
    work on the machine."""
    ordered = sorted(samples)
    return ordered[len(ordered) // 4] / ordered[0] - 1


def finalists(planned: Planned, scores: Mapping[int, float]) -> list[int]:
    """Who is measured again: the best, what is near, the manifest's own config and the stored one."""
    alive = sorted((number for number in scores if math.isfinite(scores[number])), key=lambda n: scores[n])
    if not alive:
        return []
    near = [number for number in alive if scores[number] <= NEAR * scores[alive[0]]][:FINALISTS]
    kept = [number for number in dict.fromkeys((0, planned.problem.incumbent)) if number in alive]
    return list(dict.fromkeys([*near, *kept]))


def winner_of(planned: Planned, scores: Mapping[int, float], finals: Mapping[int, Final]) -> int | None:
    """The best config; the stored one, else the manifest's, stays unless the gain exceeds the noise."""
    ranked = {number: final.score for number, final in finals.items()} or dict(scores)
    alive = {number: us for number, us in ranked.items() if math.isfinite(us)}
    if not alive:
        return None
    best, held = min(alive, key=lambda number: alive[number]), planned.problem.incumbent
    if held not in alive:
        return best
    noise = max((finals[number].noise for number in (best, held) if number in finals), default=0.0)
    gain = 1 - alive[best] / alive[held]
    return best if gain > max(noise, _LEAST_GAIN) else held
