"""Shapes drawn by a seed: those that a kernel is timed at, and those that its schedules are tried at."""

from __future__ import annotations

import math

import numpy as np

from tilec.ir.guards import Guard
from tilec.trials.facts import KernelFacts, VariantFacts
from tilec.trials.shapes import Dims, elements_of, fit, with_strides

#: The largest dim that is drawn where a guard has no end; what half of the dims are multiples of.
_LARGEST, _ROUND = 16384, 64
#: Shapes that are drawn for each one that is wanted, at most.
_ATTEMPTS = 20


def drawn(kernel: KernelFacts, variant: VariantFacts, count: int, seed: int, most: int) -> list[Dims]:
    """At most ``count`` different shapes within the guards whose tensors hold at most ``most`` elements:
    sizes log-uniform, half of them multiples of 64."""
    rng = np.random.default_rng(seed)
    found: dict[str, Dims] = {}
    for _ in range(_ATTEMPTS * count):
        base = {name: _size(variant.guard(name), rng) for name in kernel.dims}
        dims = with_strides(kernel, variant, base, False)
        if dims is not None and elements_of(kernel, dims) <= most:
            found.setdefault(str(dims), dims)
        if len(found) == count:
            break
    return list(found.values())


def _size(guard: Guard, rng: np.random.Generator) -> int:
    """One that a guard admits."""
    least = guard.min or guard.div
    most = max(min(guard.max or _LARGEST, _LARGEST), least)
    size = round(math.exp(rng.uniform(math.log(least), math.log(most))))
    rounded = -(-size // _ROUND) * _ROUND
    return fit(guard, rounded if rng.random() < 0.5 and rounded <= most else size)
