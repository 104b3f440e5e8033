"""Costs of a list beside each other: factors near 1 with which its choice loses less.

Each cost is fitted by itself (`fit.py`), and is a few percent off where its terms do not tell all; of two
schedules that take nearly the same the slower one is taken then. Here all costs of a list are held to times
together. A factor moves from 1 where the mean loss falls by more than it moves, so that few do, and what they
gain is no accident of the shapes.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilec.costs import cost

if TYPE_CHECKING:
    from tilec.build.schedules.fit import Times

#: What a cost may be multiplied by.
FACTORS = (0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.08, 1.1)
#: Mean loss by which a factor must pay for its distance from 1, both as logarithms.
_PAYS = 0.01
#: What the choice loses where it was not timed: more than what a factor can hide.
_UNTIMED = math.log(1.15)
_MOST_TURNS = 8


def balanced(costs: Sequence[str], times: Sequence[Times], units: int) -> list[float]:
    """Of each of ``costs`` what it is to be multiplied by. One factor after the other takes its best value,
    until none moves. ``times``: by the number of a cost, on a device of ``units`` multiprocessors."""
    judge = _Judge(costs, times, units)
    factors = [1.0] * len(costs)
    for _ in range(_MOST_TURNS):
        before = list(factors)
        for at in range(len(costs)):
            tried = [(judge.price([*factors[:at], each, *factors[at + 1 :]]), each) for each in FACTORS]
            factors[at] = min(tried, key=lambda one: (one[0], abs(math.log(one[1]))))[1]
        if factors == before:
            break
    return factors


def mean_loss(costs: Sequence[str], times: Sequence[Times], units: int) -> float:
    """The mean logarithm of what the cheapest of ``costs`` takes over the best of those timed."""
    return _Judge(costs, times, units).loss([1.0] * len(costs))


class _Judge:
    """What factors are worth."""

    def __init__(self, costs: Sequence[str], times: Sequence[Times], units: int) -> None:
        import numpy as np

        self._costs = np.array([[cost(text, each.dims, units) for text in costs] for each in times])
        self._losses = np.array([_losses(each, len(costs)) for each in times])

    def price(self, factors: Sequence[float]) -> float:
        """The loss, and what the distance from 1 takes."""
        return self.loss(factors) + _PAYS * sum(abs(math.log(each)) for each in factors)

    def loss(self, factors: Sequence[float]) -> float:
        """The mean of all shapes."""
        import numpy as np

        chosen = (self._costs * np.array(factors)).argmin(axis=1)
        return float(self._losses[np.arange(len(chosen)), chosen].mean())


def _losses(times: Times, count: int) -> list[float]:
    """Of each schedule at a shape, in the mean logarithm beside the best."""
    return [math.log(times.us[at] / times.best) if at in times.us else _UNTIMED for at in range(count)]


def scaled(text: str, factor: float) -> str:
    """A cost so many times, its factors to four digits: of sums all parts, of products one."""
    return ast.unparse(_scaled(ast.parse(text, mode="eval").body, factor))


def _scaled(node: ast.expr, factor: float) -> ast.expr:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return ast.Constant(float(f"{node.value * factor:.4g}"))
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        return ast.BinOp(_scaled(node.left, factor), node.op, _scaled(node.right, factor))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        if isinstance(_first(node.left), ast.Constant):
            return ast.BinOp(_scaled(node.left, factor), node.op, node.right)
        return ast.BinOp(node.left, node.op, _scaled(node.right, factor))
    return ast.BinOp(ast.Constant(factor), ast.Mult(), node)


def _first(node: ast.expr) -> ast.expr:
    """The first of all that a product multiplies."""
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        node = node.left
    return node
