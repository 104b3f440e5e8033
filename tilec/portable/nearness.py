"""When a number counts as another: the one rule for numbers, arrays of NumPy and tensors of torch."""

from __future__ import annotations

from typing import Any


def near(got: Any, expected: Any, rtol: float, atol: float, *, equal_nan: bool = True) -> Any:
    """Whether ``|got - expected| <= atol + rtol * |expected|``: one answer for numbers, one an element of
    arrays. An infinity is near to itself alone, NaN to NaN where ``equal_nan``."""
    is_finite = expected - expected == 0
    found = (got == expected) | (is_finite & (abs(got - expected) <= atol + rtol * abs(expected)))
    return found | ((got != got) & (expected != expected)) if equal_nan else found
