"""Which variants of a kernel a call chooses among by cost: told here for records, for the metadata of a
library and for variants of a manifest.

Schedules of one list have costs, and share their target. Of those that admit a call, by its dims and by where
its tensors begin, the one of least cost serves, whatever their order. Costs of different lists are not
compared, as each list's are made for the calls that its guards admit. Schedules of a list with the same
guards and demands on alignment stand together in dispatch order: a run, whose costs a library computes at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple, TypeAlias

from tilec.costs import cheapest, kept_cost
from tilec.ir.guards import Guard
from tilec.package.model import VariantRecord

#: The runs among which a call chooses, in dispatch order.
Choice: TypeAlias = "tuple[range, ...]"


class Calls(NamedTuple):
    """What a variant serves: ``listed`` names its list, None without a cost; ``align`` is what it demands of
    addresses, which is compared, in whatever form it has."""

    listed: object | None
    guards: Mapping[str, Guard]
    align: object


def calls(
    target: str,
    guards: Mapping[str, Guard],
    listed_under: Mapping[str, Guard] | None,
    align: object,
    cost: str,
) -> Calls:
    """What a variant serves. ``listed_under``: the guards of all of its list, None where these are
    ``guards``."""
    named = guards if listed_under is None else listed_under
    return Calls((target, tuple(sorted(named.items(), key=_name))) if cost else None, guards, align)


def _name(item: tuple[str, Guard]) -> str:
    return item[0]


def choices(served: Sequence[Calls]) -> list[Choice]:
    """For each variant, in dispatch order, the runs of its list whose guards may hold where its own do, its
    own among them; it alone where it has no cost."""
    runs = list(_runs(served))
    found = [_rivals(run, runs, served) for run in runs]
    return [choice for run, choice in zip(runs, found, strict=True) for _ in run]


def choices_of(variants: Sequence[VariantRecord]) -> list[Choice]:
    """The same of records."""
    return choices([_calls_of(variant) for variant in variants])


def _calls_of(variant: VariantRecord) -> Calls:
    listed = None if variant.listed_under is None else dict(variant.listed_under)
    return calls(variant.target, dict(variant.guards), listed, variant.align, variant.cost)


def several(choice: Choice) -> bool:
    """Whether there is something to choose."""
    return sum(map(len, choice)) > 1


def taken(
    choice: Choice,
    admits: Callable[[int], bool],
    costs: Sequence[str],
    dims: Mapping[str, int],
    units: int,
    features: Collection[str],
) -> int:
    """The number of the variant that serves a call, of those among which it chooses: the cheapest of those
    that admit it, the first of several. ``features`` are the processor's."""
    if not several(choice):
        return choice[0].start
    admitting = (run for run in choice if admits(run.start))
    heads = [run[cheapest([costs[at] for at in run], dims, units, features)] for run in admitting]
    return min(heads, key=lambda at: kept_cost(costs[at], dims, units, features))


def _runs(served: Sequence[Calls]) -> Iterable[range]:
    """Neighbours of one list with the same guards and demands; each other variant alone."""
    first = 0
    for each, members in groupby(served):
        count = len(list(members))
        after = first + count
        yield from [range(first, after)] if each.listed is not None else map(_alone, range(first, after))
        first = after


def _alone(at: int) -> range:
    return range(at, at + 1)


def _rivals(run: range, runs: Sequence[range], served: Sequence[Calls]) -> Choice:
    own = served[run.start]
    if own.listed is None:
        return (run,)
    same = (each for each in runs if served[each.start].listed == own.listed)
    return tuple(each for each in same if _may_meet(own.guards, served[each.start].guards))


def _may_meet(one: Mapping[str, Guard], other: Mapping[str, Guard]) -> bool:
    """Whether there are dims that the guards of both admit."""
    return all(_admits_one(guard, other[name]) for name, guard in one.items() if name in other)


def _admits_one(one: Guard, other: Guard) -> bool:
    both = one & other
    if both.eq is not None:
        return bool(one.admits(both.eq) and other.admits(both.eq))
    return both.smallest(0) is not None
