"""What came of a problem: a row for each config, finals measured in turns, and who won."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilec.portable.dims import dims_text
from tilec.portable.runner.judge import OK, quartile, score, spread
from tilec.tune.plan.planning import Planned

#: A gain below this share is none, whatever the noise was.
_LEAST_GAIN = 0.005


@dataclass(frozen=True)
class PointFacts:
    """A point: what a call does there. ``flops``: operations of products, by ``dtype`` of the operands;
    ``bytes``: of tensors, each once for each direction. ``flops`` is 0 where nobody can tell."""

    text: str
    weight: int = 1
    flops: float = 0.0
    dtype: str = ""
    bytes: float = 0.0


@dataclass(frozen=True)
class About:
    """A problem as plain data. ``dims``: the guards; ``configs`` by number, 0 the manifest's own, and
    ``incumbent`` the one that is used now. ``pruned``: number, kind and reason of what was left out before
    any compile; ``predicted``: microseconds by number, of the cost model; ``size``: choices of the space.
    ``is_sweep``: schedules are to be made of it (`tilec.tune.plan.sweeps`)."""

    id: str
    kernel: str
    target: str
    dims: Mapping[str, str]
    points: tuple[PointFacts, ...]
    configs: tuple[Mapping[str, Any], ...]
    source_sha256: str
    incumbent: int = 0
    weighted: bool = False
    size: int = 0
    pruned: tuple[tuple[int, str, str], ...] = ()
    predicted: Mapping[int, float] = field(default_factory=dict)
    compiler: str = ""
    is_sweep: bool = False

    @property
    def title(self) -> str:
        """One line for people."""
        guards = dims_text(self.dims)
        return f"{self.kernel} on {self.target}" + (f", {guards}" if guards else "")

    def score(self, points: Sequence[float]) -> float:
        """One number for microseconds at all points."""
        return score(points, [point.weight for point in self.points], self.weighted)


def about(planned: Planned, points: Sequence[PointFacts] = (), compiler: str = "") -> About:
    """A planned problem as plain data; ``points``: where they are known."""
    problem = planned.problem
    guards = {name: str(guard) for name, guard in problem.variant.dims.items()}
    return About(
        problem.id,
        problem.variant.kernel,
        problem.variant.target.name,
        guards,
        tuple(points) or tuple(PointFacts(point.text, point.weight) for point in problem.points),
        tuple(dict(config) for config in problem.configs),
        problem.source_sha256,
        problem.incumbent,
        problem.weighted,
        problem.space.size,
        tuple((number, refused.kind, refused.reason) for number, refused in planned.pruned.items()),
        {number: seconds * 1e6 for number, seconds in planned.predicted.items()},
        compiler,
        problem.is_sweep,
    )


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
    """``rows``: the last one of every config that was tried, in the order in which they were. ``finals`` by
    number; ``winner``: the number of the config to use, None where none works. ``device``: what the device
    said of itself. ``threads``: of a CPU, 0 for all. ``reused``: rows of an earlier run.
    ``date``: when it was measured, today unless it says so."""

    about: About
    rows: tuple[Row, ...]
    finals: Mapping[int, Final]
    device: Mapping[str, Any]
    winner: int | None = None
    seconds: float = 0.0
    reused: int = 0
    threads: int = 0
    date: str = ""

    @property
    def failures(self) -> dict[str, int]:
        """How many configs failed, by kind."""
        return dict(Counter(row.outcome for row in self.rows if row.outcome != OK).most_common())

    def points(self, number: int) -> tuple[float, ...]:
        """Microseconds of a config at each point, of the finals if it was in them; none where it failed."""
        if number in self.finals:
            return self.finals[number].points
        return next((row.points for row in self.rows if row.number == number and row.outcome == OK), ())

    def score(self, number: int) -> float:
        """Microseconds of a config; infinite where it failed."""
        points = self.points(number)
        return self.about.score(points) if points else math.inf


def scores_of(known: About, rows: Sequence[Row]) -> dict[int, float]:
    """Microseconds by number; infinite for what failed."""
    return {row.number: known.score(row.points) if row.outcome == OK else math.inf for row in rows}


def finals_of(known: About, numbers: Sequence[int], answer: Mapping[str, Any]) -> dict[int, Final]:
    """The finals of a worker's answer; none where it failed."""
    found = {}
    for position, number in enumerate(numbers if "points" in answer else ()):
        samples = [point[str(position)] for point in answer["points"]]
        quartiles = tuple(quartile(one) for one in samples)
        found[number] = Final(known.score(quartiles), max(spread(one) for one in samples), quartiles)
    return found


def winner_of(known: About, scores: Mapping[int, float], finals: Mapping[int, Final]) -> int | None:
    """The best config; the one that is used now stays unless the gain exceeds the noise."""
    ranked = {number: final.score for number, final in finals.items()} or dict(scores)
    alive = {number: us for number, us in ranked.items() if math.isfinite(us)}
    if not alive:
        return None
    best, held = min(alive, key=lambda number: alive[number]), known.incumbent
    if held not in alive:
        return best
    noise = max((finals[number].noise for number in (best, held) if number in finals), default=0.0)
    gain = 1 - alive[best] / alive[held]
    return best if gain > max(noise, _LEAST_GAIN) else held
