"""Costs of schedules from times at many shapes, and the few schedules that are worth having.

A cost is a sum of terms (`features.py`) with factors of 0 or more, by least squares of relative errors: the
set of terms whose unbounded solution is positive and best (Lawson and Hanson, Solving Least Squares Problems,
chapter 23). Where a schedule is far from the best one its error matters less. Schedules are taken one by one,
each time the one that lowers the mean loss most: the logarithm of what the cheapest by cost takes over what
the best takes, both of those that were timed at a shape. What was not timed there says nothing of the choice.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tilec.build.schedules.features import HELD
from tilec.costs import cost

if TYPE_CHECKING:
    import numpy as np

#: How fast the weight of a time falls with the distance from the best one.
_FALL = 1.5
#: A cost that only so few shapes tell is none.
FEWEST = 8
#: What a shape costs that none of those held was timed at: its list must not do without the others.
_UNKNOWN = math.log(10)
#: More blocks on a multiprocessor must leave at most this share of the error, further terms of this. With 0.9
#: costs have two thirds of the terms that they have with 1, and choose as well at shapes that were held back.
_BETTER, _TELLING = 0.97, 0.9
#: What keeps sets of terms that say the same solvable, beside columns of length 1, and columns of zeros.
_RIDGE, _SHORTEST = 1e-11, 1e-300


@dataclass(frozen=True)
class Times:
    """Microseconds of schedules, by number, at one shape."""

    dims: Mapping[str, int]
    us: Mapping[int, float]

    @property
    def best(self) -> float:
        """The least."""
        return min(self.us.values())


class Terms(Protocol):
    """What a cost is a sum of, such as `features.Features`."""

    def terms(self, held: int) -> tuple[str, ...]:
        """The texts whose factors are fitted, for so many blocks on a multiprocessor."""

    def cost(self, held: int, factors: Sequence[float]) -> str:
        """The sum with such factors."""


def fit(features: Terms, number: int, times: Sequence[Times], units: int) -> str | None:
    """The cost of schedule ``number`` on a device of so many multiprocessors; None where too few shapes
    tell."""
    told = [at for at, each in enumerate(times) if number in each.us]
    if len(told) < FEWEST:
        return None
    best: tuple[float, str] | None = None
    for held in HELD:
        terms = features.terms(held)
        error, factors = _factors(terms, number, [times[at] for at in told], units)
        if best is None or error < _BETTER * best[0]:
            best = (error, features.cost(held, factors))
    return None if best is None else best[1]


def _factors(
    terms: Sequence[str], number: int, times: Sequence[Times], units: int
) -> tuple[float, tuple[float, ...]]:
    import numpy as np

    us = np.array([each.us[number] for each in times])
    best = np.array([each.best for each in times])
    weights = (best / us) ** _FALL / us
    columns = np.array([[cost(term, each.dims, units) for term in terms] for each in times])
    return _least_squares(columns * weights[:, None], us * weights)


def _least_squares(matrix: np.ndarray, wanted: np.ndarray) -> tuple[float, tuple[float, ...]]:
    """The squared error, and factors of 0 or more: of few terms, where more do not tell much more."""
    found = (float(wanted @ wanted), (0.0,) * matrix.shape[1])
    for size in range(1, matrix.shape[1] + 1):
        best = _of_size(matrix, wanted, size)
        if best is not None and best[0] < _TELLING * found[0]:
            found = best
    return found


def _of_size(matrix: np.ndarray, wanted: np.ndarray, size: int) -> tuple[float, tuple[float, ...]] | None:
    """The same with so many factors above 0; None where no set of terms has such. Sets are solved together,
    by normal equations of columns of one length."""
    import numpy as np

    lengths = np.maximum(np.linalg.norm(matrix, axis=0), _SHORTEST)
    columns = matrix / lengths
    sets = np.array(list(itertools.combinations(range(matrix.shape[1]), size)))
    products, told = columns.T @ columns + _RIDGE * np.eye(matrix.shape[1]), columns.T @ wanted
    factors = np.linalg.solve(products[sets[:, :, None], sets[:, None, :]], told[sets][:, :, None])[:, :, 0]
    errors = wanted @ wanted - (factors * told[sets]).sum(axis=1)
    errors[~(factors > 0).all(axis=1)] = np.inf
    best = int(errors.argmin())
    if not np.isfinite(errors[best]):
        return None
    full = np.zeros(matrix.shape[1])
    full[sets[best]] = factors[best] / lengths[sets[best]]
    return float(errors[best]), tuple(full.tolist())


# ---- which to keep ----


def few(
    features: Mapping[int, Terms],
    told: Sequence[Times],
    judged: Sequence[Times],
    units: int,
    most: int,
    gain: float,
) -> dict[int, str]:
    """The costs of at most ``most`` schedules, by number, the most useful first: fitted to the times that are
    ``told``, chosen by those ``judged``. Empty where too few shapes tell."""
    fits = {number: fit(each, number, told, units) for number, each in features.items()}
    costs = {number: text for number, text in fits.items() if text is not None}
    return {number: costs[number] for number in Chooser(costs, judged, units).chosen(most, gain)}


class Chooser:
    """What a library that holds some of the schedules would take. ``costs``: their texts, by number."""

    def __init__(self, costs: Mapping[int, str], times: Sequence[Times], units: int) -> None:
        self._times = times
        self._costs = {
            number: [cost(text, each.dims, units) for each in times] for number, text in costs.items()
        }

    def chosen(self, most: int, gain: float) -> list[int]:
        """At most ``most`` schedules, the most useful first; none that lowers the mean loss by less than
        ``gain``."""
        found: list[int] = []
        reached = math.inf
        while len(found) < most:
            losses = {number: self.loss([*found, number]) for number in self._costs if number not in found}
            if not losses or min(losses.values()) > reached - gain:
                break
            found.append(min(losses, key=losses.__getitem__))
            reached = losses[found[-1]]
        return found

    def loss(self, held: Sequence[int]) -> float:
        """The mean logarithm of what the cheapest of those held takes over what the best of all takes, among
        those that were timed."""
        return sum(self._loss(held, at) for at in range(len(self._times))) / len(self._times)

    def untimed(self, held: Sequence[int]) -> int:
        """At how many shapes the cheapest of those held was not timed."""
        return sum(self._cheapest(held, at) not in times.us for at, times in enumerate(self._times))

    def _loss(self, held: Sequence[int], at: int) -> float:
        times = self._times[at]
        timed = [number for number in held if number in times.us]
        return math.log(times.us[self._cheapest(timed, at)] / times.best) if timed else _UNKNOWN

    def _cheapest(self, held: Sequence[int], at: int) -> int:
        return min(held, key=lambda number: self._costs[number][at])
