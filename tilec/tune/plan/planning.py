"""Which configs of a problem are worth compiling, best first: static analysis, then the cost model."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilec.backends.limits import Limits
from tilec.build.elaborated.value_kinds import remarks_on_space
from tilec.build.schedules.cost import predicted_seconds
from tilec.build.schedules.examine import Examined, Refused
from tilec.build.schedules.promising import promising
from tilec.errors import Remark
from tilec.tune.plan.points import Point
from tilec.tune.plan.problems import Problem


@dataclass(frozen=True)
class Planned:
    """A problem with what static analysis found. ``order``: the configs that are left, the most promising
    first; the manifest's and the stored one always come first of all. ``pruned``: number to reason.
    ``predicted``: seconds by number. ``facts``: of one of the configs, which say what any of them does.
    ``remarks``: what the author of the values to try is to be told."""

    problem: Problem
    order: tuple[int, ...]
    pruned: Mapping[int, Refused]
    predicted: Mapping[int, float]
    facts: Mapping[int, Examined] = field(repr=False, default_factory=dict)
    remarks: tuple[Remark, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """How many configs were left out, by kind."""
        return dict(Counter(refused.kind for refused in self.pruned.values()).most_common())

    @property
    def reasons(self) -> dict[str, str]:
        """Why the first config of each kind was left out."""
        return {refused.kind: refused.reason for refused in reversed(list(self.pruned.values()))}


def plan_problem(
    problem: Problem, examined: Sequence[Examined | Refused], limits: Limits, moved: Callable[[Point], float]
) -> Planned:
    """``examined``: by number of the config. ``moved``: bytes of all tensors at a point."""
    pruned, kept, owners = {}, {}, dict[str, int]()
    for number, found in enumerate(examined):
        if isinstance(found, Refused):
            pruned[number] = found
        elif found.code in owners:
            same = _config_text(problem.configs[owners[found.code]])
            pruned[number] = Refused("same code", f"it comes to the same code as {same}")
        else:
            owners[found.code] = number
            kept[number] = found
    seconds = {
        number: [predicted_seconds(one, point.dims, moved(point), limits) for point in problem.points]
        for number, one in kept.items()
    }
    weights = [point.weight for point in problem.points]
    predicted = {number: sum(map(operator.mul, weights, each)) for number, each in seconds.items()}
    usual = sorted(predicted, key=predicted.__getitem__)
    ranked = promising(seconds, len(seconds)) if problem.is_sweep else usual
    return Planned(problem, _ordered(problem, ranked), pruned, predicted, kept, _remarks(problem, kept))


def _remarks(problem: Problem, kept: Mapping[int, Examined]) -> tuple[Remark, ...]:
    """On the values to try; none where no config says what kinds of values the kernel takes."""
    one = next(iter(kept.values()), None)
    tune = problem.kernel.entry.tune
    return () if one is None else tuple(remarks_on_space(problem.variant, tune, one.kinds))


def _ordered(problem: Problem, ranked: Sequence[int]) -> tuple[int, ...]:
    """The manifest's config and the stored one before all others."""
    first = [number for number in dict.fromkeys((0, problem.incumbent)) if number in ranked]
    return (*first, *(number for number in ranked if number not in first))


def _config_text(config: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in config.items()) or "the default"
