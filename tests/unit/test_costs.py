"""Costs as texts: what they are worth, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilec.costs import cheapest, check_cost, cost, features_in
from tilec.sizes import SizeError

DIMS = {"M": 300, "N": 1000}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2.0),
        ("M / 128", 300 / 128),
        ("ceil(M / 128)", 3.0),
        ("-M + 1.5 * N", 1200.0),
        ("min(M, N) - max(M, N)", -700.0),
        ("waves(ceil(M / 128) * ceil(N / 128))", 3.0),
        ("N / max(1, M)", pytest.approx(1000 / 300)),
        ("M / max(N * 0, 1)", 300.0),
        ("rounds(20)", pytest.approx(2.0)),
        ("waves(20)", 2.0),
        ("waves(21)", 3.0),
        ("waves(0)", 0.0),
    ],
)
def test_costs_have_values(text: str, value: float) -> None:
    assert cost(text, DIMS, 10) == value


@given(waves=st.integers(0, 2**11 - 1), units=st.integers(1, 1024))
def test_whole_waves_are_whole(waves: int, units: int) -> None:
    blocks = {"B": waves * units}
    assert cost("waves(B)", blocks, units) == waves
    if units > 1:
        assert cost("waves(B + 1)", blocks, units) == waves + 1


@given(blocks=st.integers(0, 2**45), units=st.integers(1, 1024), by=st.integers(1, 1024))
def test_large_numbers_are_rounded_up_but_for_a_millionth(blocks: int, units: int, by: int) -> None:
    assert cost("waves(B)", {"B": blocks}, units) == pytest.approx(-(-blocks // units), rel=1e-6, abs=1)
    assert cost(f"ceil(B / {by})", {"B": blocks}, 1) == pytest.approx(-(-blocks // by), rel=1e-6, abs=1)


def test_negative_quotients_are_rounded_up() -> None:
    assert cost("ceil((M - 364) / 64)", DIMS, 1) == -1.0
    assert cost("ceil((M - 400) / 64)", DIMS, 1) == -1.0


def test_the_first_of_equal_costs_is_the_cheapest() -> None:
    assert cheapest(["M", "N", "M", "300"], DIMS, 1) == 0
    assert cheapest(["N", "M"], DIMS, 1) == 1


def test_processors_have_costs_of_their_own() -> None:
    text = "M * on(zen4, 2, on(amx, 3, 4)) + on(zen4, N, 0)"
    assert cost(text, DIMS, 1) == 1200
    assert cost(text, DIMS, 1, ["vnni", "amx"]) == 900
    assert cost(text, DIMS, 1, ["zen4", "amx"]) == 1600
    assert set(features_in(text)) == {"zen4", "amx"}
    assert cheapest(["on(zen4, N, M)", "400"], DIMS, 1) == 0
    assert cheapest(["on(zen4, N, M)", "400"], DIMS, 1, ["zen4"]) == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("K + 1", "reads K, and the dims are M, N"),
        ("M / N", "divides by something else"),
        ("M / max(M, N)", "divides by something else"),
        ("M / max(0, N)", "divides by something else"),
        ("M / 0", "divides by something else"),
        ("M // 2", "a cost is made of"),
        ("waves(M, N)", "a cost is made of"),
        ("on(zen5, M, N)", "asks with on for no feature of CPUs: avxvnni"),
        ("on(M, 1, 2)", "asks with on for no feature of CPUs"),
        ("on(1, M, N)", "asks with on for no feature of CPUs"),
        ("on(zen4, M)", "a cost is made of"),
        ("on(zen4, M, N) + zen4", "reads zen4, and the dims are M, N"),
        ("__import__('os')", "a cost is made of"),
        ("1 +", "is no cost"),
        ("M * 1e999", "too large for single precision"),
        ("M * 1e39", "too large for single precision"),
        ("M / 1e-39", "divides by something else"),
        ("M / max(1e-39, N)", "divides by something else"),
        (f"M * {10**400}", "too large for single precision"),
    ],
)
def test_what_is_no_cost_is_refused(text: str, why: str) -> None:
    with pytest.raises(SizeError, match=why):
        check_cost(text, tuple(DIMS))


@pytest.mark.parametrize("by", [3, 64, 152, 192])
def test_quotients_are_rounded_up_as_integers_are(by):
    for value in (1, by - 1, by, by + 1, 7 * by, 8192 * by, 8192 * by + 1):
        assert cost(f"ceil(N / {by})", {"N": value}, 132) == -(-value // by)
