"""Schedules from a sweep. Every fourth shape is held out: costs are fitted to the others, and what the
library would take at these says how good the choice is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tilec.backends.base import limits_of
from tilec.build.schedules.features import features_of
from tilec.build.schedules.fit import FEWEST, Chooser, Times, few
from tilec.build.schedules.space import Config
from tilec.errors import InputError
from tilec.manifest import Variant
from tilec.portable.runner.judge import OK
from tilec.tune.outcome.results import Result

#: Every so many shapes one is held out.
_HELD = 4
#: So many are left to fit costs to, and some held out, from here on.
_ENOUGH = FEWEST * _HELD // (_HELD - 1)


@dataclass(frozen=True)
class Fitted:
    """``schedules`` of a variant, config and cost, the most useful first. Mean factors over the best of all
    that were timed: ``told`` at the shapes that costs were fitted to, ``held`` at the ``shapes`` held out,
    ``worst`` the largest of these, ``single`` of the one config that is best at the others."""

    variant: Variant
    schedules: tuple[tuple[Config, str], ...]
    shapes: int
    told: float
    held: float
    worst: float
    single: float


def check_shapes(variant: Variant, shapes: int) -> None:
    """Raises InputError where costs cannot be fitted to the times of so many shapes."""
    if shapes < _ENOUGH:
        raise _too_few(variant, shapes)


def _too_few(variant: Variant, shapes: int) -> InputError:
    return InputError(
        f"too few shapes of {variant.title} to fit costs to",
        why=f"there are {shapes}, and every fourth is held out",
        remedy=f"take {_ENOUGH} or more, with --random or --shapes",
    )


def fitted(result: Result, variant: Variant, most: int, gain: float) -> Fitted:
    """At most ``most`` schedules that each make the mean call so much faster. Raises InputError where too few
    shapes tell."""
    times = _times(result)
    held = times[_HELD - 1 :: _HELD]
    told = [each for each in times if each not in held]
    numbers = sorted({number for each in told for number in each.us})
    features = {
        number: features_of(replace(variant, config=result.about.configs[number])) for number in numbers
    }
    units = limits_of(variant.target, result.device, result.threads).units
    chosen = few(features, told, told, units, most, gain)
    if not chosen or not held:
        raise _too_few(variant, len(times))
    chooser = Chooser(chosen, held, units)
    single = min(numbers, key=lambda number: sum(math.log(each.us[number]) for each in told))
    return Fitted(
        variant,
        tuple((result.about.configs[number], text) for number, text in chosen.items()),
        len(held),
        math.exp(Chooser(chosen, told, units).loss(list(chosen))),
        math.exp(chooser.loss(list(chosen))),
        max(math.exp(Chooser(chosen, [each], units).loss(list(chosen))) for each in held),
        math.exp(sum(math.log(each.us[single] / each.best) for each in held) / len(held)),
    )


def _times(result: Result) -> list[Times]:
    """Microseconds of the configs that were right, at each point."""
    rows = [row for row in result.rows if row.outcome == OK]
    return [
        Times(_dims(point.text), {row.number: row.points[at] for row in rows})
        for at, point in enumerate(result.about.points)
        if rows
    ]


def _dims(text: str) -> dict[str, int]:
    """Of ``M=16 N=4096``."""
    pairs = (part.split("=") for part in text.split())
    return {name: int(value) for name, value in pairs}
