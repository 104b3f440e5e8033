"""Which configs are worth a look, by what the cost model says of them at several shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

#: A config must lower the mean logarithm of the time by so much to be among the first.
_GAIN = 0.002


def promising(seconds: Mapping[int, Sequence[float]], most: int) -> list[int]:
    """At most ``most`` of the configs, by number, the most useful first. ``seconds``: of each at every shape.

    First come the few that together are nearest to the best of all at every shape, then those of the rest."""
    left, found = dict(seconds), list[int]()
    while left and len(found) < most:
        numbers = list(left)
        together = _together(np.log(np.array([left[number] for number in numbers])))
        found += [numbers[at] for at in together]
        for at in together:
            del left[numbers[at]]
    return found[:most]


def _together(logs: np.ndarray) -> list[int]:
    """Rows that are taken one by one, each time the one that lowers the mean of the least most."""
    reached, chosen = np.full(logs.shape[1], np.inf), list[int]()
    while True:
        means = np.minimum(logs, reached).mean(axis=1)
        best = int(means.argmin())
        if chosen and reached.mean() - means[best] < _GAIN:
            return chosen
        chosen.append(best)
        reached = np.minimum(reached, logs[best])
