"""Conditions over names, as `where` of a tuning space writes them: "bM * bN <= 32768 and num_stages > 1".

Python's syntax with arithmetic, comparisons (chained ones too), `and`, `or`, `not`, `in`, min, max, abs and
conditional expressions over integers, floats, strings, booleans and lists of them; nothing else is run, and
never `eval`.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from tilec import sizes
from tilec.sizes import ARITHMETIC, COMPARISONS, LIST, LOGIC, SELECT, Grammar, Operation

_GRAMMAR = Grammar(
    article="a",
    what="condition",
    offered="numbers, strings, names, + - * / // %, comparisons, in, and, or, not, if-else, min, max, abs",
    longest=4000,
    constants=(bool, int, float, str),
    operations={
        **ARITHMETIC,
        **COMPARISONS,
        **LOGIC,
        "/": Operation(operator.truediv),
        "in": Operation(lambda a, b: a in b),
        "not in": Operation(lambda a, b: a not in b),
        "if": SELECT,
        LIST: Operation(lambda *parts: list(parts), 0, None),
        "min": Operation(min, 1, None),
        "max": Operation(max, 1, None),
        "abs": Operation(abs, 1, 1),
    },
    chains=True,
)


def check_condition(text: str) -> str:
    """``text`` itself. Raises ValueError for what is no condition."""
    sizes.parse(_GRAMMAR, text)
    return text


def names_in(text: str) -> tuple[str, ...]:
    """The names that a condition reads, sorted."""
    return tuple(sorted(sizes.names_of(_GRAMMAR, text)))


def holds(text: str, names: Mapping[str, Any]) -> bool:
    """Whether a condition holds for the values of its names. Raises what `evaluate` raises."""
    return bool(evaluate(text, names))


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """The value of an expression.

    Raises:
        KeyError: a name has no value.
        TypeError, ZeroDivisionError: the values do not fit what is done with them.
    """
    return sizes.evaluate(_GRAMMAR, text, names)
