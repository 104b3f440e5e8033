"""Integer expressions over names, as a manifest writes them: "num_attention_heads * head_dim".

Python's syntax with + - * // %, min, max and cdiv (the quotient rounded up); nothing else, and never `eval`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from tilec import sizes
from tilec.sizes import ARITHMETIC, Grammar, Operation


def check_expression(text: str) -> str:
    """``text`` itself. Raises ValueError for what is no expression of this kind."""
    sizes.parse(_GRAMMAR, text)
    return text


def names_of(text: str) -> tuple[str, ...]:
    """The names that an expression reads, in order of appearance."""
    return sizes.names_of(_GRAMMAR, text)


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """The value for given names: integers, or NumPy arrays of them.

    Raises:
        KeyError: a name is not given.
        ZeroDivisionError: a divisor is zero.
    """
    return sizes.evaluate(_GRAMMAR, text, names)


def fold(text: str, names: Mapping[str, int]) -> str:
    """The expression with every part that the given names decide as a number: "tokens * 4096"."""
    return sizes.text_of(sizes.folded(_GRAMMAR, text, names))


# ---- integers, or NumPy arrays of them ----


def _divided(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """NumPy would only warn of a divisor of zero."""

    def run(left: Any, right: Any) -> Any:
        if not (right.all() if hasattr(right, "all") else right):
            raise ZeroDivisionError("a divisor is zero")
        return function(left, right)

    return run


def _extreme(name: str) -> Callable[[Any, Any], Any]:
    def run(left: Any, right: Any) -> Any:
        if isinstance(left, int) and isinstance(right, int):
            return min(left, right) if name == "min" else max(left, right)
        import numpy as np

        return np.minimum(left, right) if name == "min" else np.maximum(left, right)

    return run


_quotient = _divided(operator.floordiv)
_FUNCTIONS = {
    "min": Operation(_extreme("min")),
    "max": Operation(_extreme("max")),
    "cdiv": Operation(lambda left, right: -_quotient(-left, right)),
}
_GRAMMAR = Grammar(
    article="an",
    what="expression",
    offered=f"integers, names, + - * // %, {', '.join(_FUNCTIONS)} of two and brackets",
    longest=200,
    constants=(int,),
    operations={
        **ARITHMETIC,
        "//": Operation(_quotient),
        "%": Operation(_divided(operator.mod)),
        **_FUNCTIONS,
    },
    apart=True,
)
