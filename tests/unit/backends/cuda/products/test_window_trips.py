"""How many trips loops along windows have at most."""

from __future__ import annotations

import pytest
from tvm import tirx

from tilec.backends.cuda.attention.assign.windows import most_trips

X, KEYS = tirx.Var("x", "int32"), tirx.Var("keys", "int32")
AHEAD = tirx.Min(tirx.floordiv(KEYS + 63, 64), tirx.floordiv((X + 1) * 128 + 63, 64))


def behind(window: int) -> tirx.Expr:
    """The first block of 64 keys that the first of 128 rows sees."""
    return tirx.Max(tirx.const(0, "int32"), tirx.floordiv(X * 128 - window + 1, 64))


@pytest.mark.parametrize("window", [1, 64, 128, 1000])
def test_windows_have_few_trips(window: int) -> None:
    bound = most_trips(behind(window), AHEAD, X)
    trips = max((x + 1) * 2 - max(0, (x * 128 - window + 1) // 64) for x in range(100))
    assert bound is not None
    assert trips <= bound <= trips + 1


@pytest.mark.parametrize(
    ("start", "stop"),
    [
        (tirx.const(0, "int32"), AHEAD),  # causal
        (tirx.const(0, "int32"), tirx.floordiv(KEYS + 63, 64)),
        (X, X * 2),
        (X, X + KEYS),
        (tirx.Min(X, KEYS), X + 1),
    ],
)
def test_other_loops_have_any_number(start: tirx.Expr, stop: tirx.Expr) -> None:
    assert most_trips(start, stop, X) is None
