"""Small dims at which a library takes a certain one of several schedules."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from tilec.costs import cheapest
from tilec.package.choices import calls, choices
from tilec.trials.drawn import drawn
from tilec.trials.facts import KernelFacts, VariantFacts
from tilec.trials.shapes import Dims, elements_of

#: Shapes that are drawn to find one.
_DRAWN = 2000


def chosen_dims(kernel: KernelFacts, variant: VariantFacts, units: int, most: int) -> Dims | None:
    """The smallest of the shapes drawn at which a device of so many multiprocessors takes ``variant`` among
    schedules for the same calls; None for a variant without rivals, or where its tensors would hold more than
    ``most`` elements."""
    served = [calls(one.target, dict(one.guards), dict(one.align), one.cost) for one in kernel.variants]
    at = kernel.variants.index(variant)
    return _smallest(kernel, choices(served)[at], units, most).get(at)


@lru_cache(maxsize=64)
def _smallest(kernel: KernelFacts, rivals: range, units: int, most: int) -> Mapping[int, Dims]:
    """For each of the rivals that some shape takes, the smallest such shape."""
    found: dict[int, Dims] = {}
    if len(rivals) == 1:
        return found
    costs = [kernel.variants[at].cost for at in rivals]
    shapes = drawn(kernel, kernel.variants[rivals[0]], _DRAWN, 0, most)
    for dims in sorted(shapes, key=lambda one: elements_of(kernel, one)):
        found.setdefault(rivals[cheapest(costs, dims, units)], dims)
        if len(found) == len(rivals):
            break
    return found
