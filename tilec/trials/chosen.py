"""Small dims at which a library takes a certain one of several schedules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from tilec.costs import cheapest
from tilec.ir.guards import Guard
from tilec.package.choices import calls, choices
from tilec.trials.facts import KernelFacts, VariantFacts
from tilec.trials.shapes import Dims, elements_of, fit, with_strides

#: Shapes that are drawn to find one, and the largest dim in them.
_DRAWN, _LARGEST = 2000, 16384


def chosen_dims(kernel: KernelFacts, variant: VariantFacts, units: int, most: int) -> Dims | None:
    """The smallest of the shapes drawn at which a device of so many multiprocessors takes ``variant`` among
    schedules for the same calls; None for a variant without rivals, or where its tensors would hold more than
    ``most`` elements."""
    served = [calls(one.target, dict(one.guards), dict(one.align), one.cost) for one in kernel.variants]
    rivals = choices(served)[kernel.variants.index(variant)]
    return _smallest(kernel, rivals, units, most).get(kernel.variants.index(variant))


@lru_cache(maxsize=64)
def _smallest(kernel: KernelFacts, rivals: range, units: int, most: int) -> Mapping[int, Dims]:
    """For each of the rivals that some shape takes, the smallest such shape."""
    found: dict[int, Dims] = {}
    if len(rivals) == 1:
        return found
    costs = [kernel.variants[at].cost for at in rivals]
    for dims in _drawn(kernel, kernel.variants[rivals[0]], most):
        found.setdefault(rivals[cheapest(costs, dims, units)], dims)
        if len(found) == len(rivals):
            break
    return found


def _drawn(kernel: KernelFacts, variant: VariantFacts, most: int) -> list[Dims]:
    """Shapes within the guards, sizes log-uniform, those of few elements first."""
    rng = np.random.default_rng(0)
    guards = {name: variant.guard(name) for name in kernel.dims}
    drawn = ({name: draw(guard, rng, _LARGEST) for name, guard in guards.items()} for _ in range(_DRAWN))
    shapes = [dims for each in drawn if (dims := with_strides(kernel, variant, each, False)) is not None]
    return sorted(
        (one for one in shapes if elements_of(kernel, one) <= most), key=lambda one: elements_of(kernel, one)
    )


def draw(guard: Guard, rng: np.random.Generator, largest: int) -> int:
    """A size that a guard admits, log-uniform up to ``largest``."""
    least = guard.min or guard.div
    most = max(min(guard.max or largest, largest), least)
    return fit(guard, round(math.exp(rng.uniform(math.log(least), math.log(most)))))
