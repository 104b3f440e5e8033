"""Judging measurements: outcomes, one number for several points, who is measured again."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

OK, WRONG, UNCOMPILED, REFUSED, TIMEOUT, CRASH, LOST = (
    "ok", "wrong result", "not compiled", "refused", "timeout", "crash", "device error",
)  # fmt: skip
#: Key of a worker's answer to the outcome.
_OUTCOMES = {"wrong": WRONG, "error": REFUSED, "timeout": TIMEOUT, "crash": CRASH, "lost": LOST}
#: Configs within this factor of the best one are measured again in turns, and at most so many.
_NEAR, _FINALISTS = 1.25, 5
#: Rounds of the finals, and seconds of rest before a sample on a GPU.
ROUNDS, PAUSE = 9, 0.02
#: Seconds that a config may take for each of many points beside what it is measured for.
POINT = 1.0


def outcome_of(answer: Mapping[str, Any]) -> tuple[str, list[float], str]:
    """Outcome, microseconds of each point and detail of a worker's answer."""
    if "points" in answer:
        return OK, [one["us"] for one in answer["points"]], ""
    key = next((key for key in _OUTCOMES if key in answer), "crash")
    return _OUTCOMES[key], [], str(answer.get(key, "no answer"))


def score(points: Sequence[float], weights: Sequence[int], weighted: bool) -> float:
    """One number for the microseconds of all points: the mean over the calls of a model (``weighted``); else
    the geometric mean, to which each point contributes alike."""
    if weighted:
        return sum(w * us for w, us in zip(weights, points, strict=True)) / sum(weights)
    return math.exp(statistics.fmean(math.log(max(us, 1e-9)) for us in points))


def quartile(samples: Sequence[float]) -> float:
    """What stands for many samples: other work on the machine only ever makes them longer."""
    return sorted(samples)[len(samples) // 4]


def spread(samples: Sequence[float]) -> float:
    """How far the quartile is above the best sample, as a share: what is worse than that is other work."""
    return quartile(samples) / min(samples) - 1


def finalists(scores: Mapping[int, float], kept: Iterable[int]) -> list[int]:
    """Who is measured again: the best, what is near, and those of ``kept`` that work. ``scores``:
    microseconds by number, infinite for what failed."""
    alive = sorted((number for number in scores if math.isfinite(scores[number])), key=lambda n: scores[n])
    if not alive:
        return []
    near = [number for number in alive if scores[number] <= _NEAR * scores[alive[0]]][:_FINALISTS]
    return list(dict.fromkeys([*near, *(number for number in kept if number in alive)]))
