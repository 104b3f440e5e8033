"""What a run would do, before it does it: sizes, what is left out and why, an estimate of the time."""

from __future__ import annotations

from dataclasses import dataclass

from tilec.backends.base import backend_of
from tilec.tune.measure.search import STRATEGIES
from tilec.tune.plan.planning import Planned

#: Seconds: a link, checks and samples of one config.
_LINK, _MEASURE, _FINALS = 0.1, 0.4, 6.0


@dataclass(frozen=True)
class Preview:
    """``size`` choices, of which conditions keep ``configs`` and static analysis ``left``. ``pruned``:
    kind to count, ``reasons``: kind to a sentence about the first of it; ``remarks``: lines to the author.
    ``compile_seconds`` and ``measure_seconds`` overlap."""

    title: str
    size: int
    configs: int
    left: int
    pruned: dict[str, int]
    reasons: dict[str, str]
    points: int
    compile_seconds: float
    measure_seconds: float
    remarks: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Wall time: compiles and measurements overlap."""
        return max(self.compile_seconds, self.measure_seconds) + _FINALS


def preview_of(planned: Planned, strategy: str, trials: int | None, jobs: int) -> Preview:
    """What tuning a problem takes."""
    assert strategy in STRATEGIES
    problem = planned.problem
    left = len(planned.order) if trials is None else min(trials, len(planned.order))
    compile_one = backend_of(problem.variant.target).compile_seconds
    rounds = 2 if strategy == "halving" else 1  # every round has half of the one before
    return Preview(
        problem.title,
        problem.space.size,
        len(problem.configs),
        len(planned.order),
        planned.counts,
        planned.reasons,
        len(problem.points),
        left * (compile_one / max(jobs, 1) + _LINK),
        left * rounds * _MEASURE * len(problem.points),
        tuple(map(str, planned.remarks)),
    )
