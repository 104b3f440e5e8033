"""Which configs of a problem are worth compiling, best first: static analysis, then the cost model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilec.backends.limits import Limits
from tilec.package.model import ParamRecord
from tilec.tune.cost import predicted_seconds
from tilec.tune.examine import Examined, Refused
from tilec.tune.points import Point
from tilec.tune.problems import Problem


@dataclass(frozen=True)
class Planned:
    """A problem with what static analysis found. ``order``: the configs that are left, the most promising
    first; the manifest's and the stored one always come first of all. ``pruned``: number to reason.
    ``predicted``: seconds by number. ``facts``: of one of the configs, which say what any of them does."""

    problem: Problem
    order: tuple[int, ...]
    pruned: Mapping[int, Refused]
    predicted: Mapping[int, float]
    facts: Mapping[int, Examined] = field(repr=False, default_factory=dict)

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
    predicted = {number: _predicted(problem, one, limits, moved) for number, one in kept.items()}
    return Planned(problem, _ordered(problem, predicted), pruned, predicted, kept)


def _predicted(
    problem: Problem, examined: Examined, limits: Limits, moved: Callable[[Point], float]
) -> float:
    """Seconds of all points, as often as they are called."""
    return sum(
        point.weight * predicted_seconds(examined, point.dims, moved(point), limits)
        for point in problem.points
    )


def _ordered(problem: Problem, predicted: Mapping[int, float]) -> tuple[int, ...]:
    first = [number for number in dict.fromkeys((0, problem.incumbent)) if number in predicted]
    rest = sorted((number for number in predicted if number not in first), key=lambda each: predicted[each])
    return (*first, *rest)


def tensor_bytes(params: Sequence[ParamRecord], dims: Mapping[str, int]) -> float:
    """Bytes of all tensors of a signature, each once; twice those read and written."""
    from tilec.dtypes import lookup

    def size(param: ParamRecord) -> float:
        directions = 2 if param.access == "inout" else 1
        return math.prod(param.shape(dims)) * lookup(param.dtype).bits / 8 * directions

    return sum(size(param) for param in params if param.is_tensor)


def _config_text(config: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in config.items()) or "the default"
