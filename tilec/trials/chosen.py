"""Small dims at which a library takes a certain one of several schedules."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from tilec.package.dispatch.choices import Calls, Choice, calls, choices, several, taken
from tilec.trials.drawn import drawn
from tilec.trials.facts import KernelFacts, VariantFacts
from tilec.trials.shapes import Dims, elements_of

#: Shapes that are drawn to find one.
_DRAWN = 2000


def chosen_dims(
    kernel: KernelFacts, variant: VariantFacts, units: int, features: tuple[str, ...], most: int
) -> Dims | None:
    """The smallest of the shapes drawn at which a device of so many multiprocessors, or a processor with
    these features, takes ``variant`` among the schedules of its list; None for a variant without rivals, or
    where its tensors would hold more than ``most`` elements."""
    at = kernel.variants.index(variant)
    choice = choices([_calls(one) for one in kernel.variants])[at]
    if not several(choice):
        return None
    run = next(run for run in choice if at in run)
    return _smallest(kernel, run, choice, units, features, most).get(at)


def _calls(one: VariantFacts) -> Calls:
    return calls(one.target, one.guards, one.listed_under, tuple(one.align.items()), one.cost)


@lru_cache(maxsize=64)
def _smallest(
    kernel: KernelFacts, run: range, choice: Choice, units: int, features: tuple[str, ...], most: int
) -> Mapping[int, Dims]:
    """For each of a run that some shape takes, the smallest such shape."""
    found: dict[int, Dims] = {}
    costs = [one.cost for one in kernel.variants]
    shapes = drawn(kernel, kernel.variants[run.start], _DRAWN, 0, most)
    for dims in sorted(shapes, key=lambda one: elements_of(kernel, one)):
        admits = [one.admits(dims) for one in kernel.variants]
        at = taken(choice, admits.__getitem__, costs, dims, units, features)
        if at in run:
            found.setdefault(at, dims)
        if len(found) == len(run):
            break
    return found
