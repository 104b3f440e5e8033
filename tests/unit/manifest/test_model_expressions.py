"""Expressions over the names of a configuration file."""

from __future__ import annotations

import numpy as np
import pytest

from tilec.manifest.text.expressions import check_expression, evaluate, fold, names_of

NAMES = {"a": 7, "b": 3, "tokens": np.arange(1, 5)}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a", 7),
        (" 2 * (a + b) - 1 ", 19),
        ("a // b + a % b", 3),
        ("cdiv(a, b)", 3),
        ("min(a, b) + max(a, b)", 10),
        ("-a + 8", 1),
        ("cdiv(tokens, 2)", [1, 1, 2, 2]),
        ("max(tokens, b)", [3, 3, 3, 4]),
    ],
)
def test_values(text: str, value: object) -> None:
    assert check_expression(text) == text
    assert np.array_equal(evaluate(text, NAMES), np.asarray(value))


@pytest.mark.parametrize(
    "text",
    [
        *("", "a +", "a.b", "a[0]", "f(a)", "min(a)", "min(a, b, 3)", "min(a, key=b)", "a ** b", "a / b"),
        *(
            "1.5",
            "'a'",
            "a < b",
            "a and b",
            "[a]",
            "lambda: a",
            "(a := 3)",
            "min",
            "__import__('os')",
            "True",
        ),
        "a + " * 60 + "a",
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expression"):
        check_expression(text)


def test_names_stand_in_order() -> None:
    assert names_of("min(b, a) * b - tokens") == ("b", "a", "tokens")


@pytest.mark.parametrize("text", ["a // (b - 3)", "tokens % (b - 3)", "cdiv(a, 3 - b)"])
def test_a_divisor_of_zero_is_seen(text: str) -> None:
    with pytest.raises(ZeroDivisionError):
        evaluate(text, NAMES)


def test_folding_leaves_what_is_open() -> None:
    fixed = {"a": 7, "b": 3}
    assert fold("tokens * cdiv(a, b)", fixed) == "tokens * 3"
    assert fold("min(tokens, a * b) - -a", fixed) == "min(tokens, 21) - -7"
    assert fold("a * b", fixed) == "21"
