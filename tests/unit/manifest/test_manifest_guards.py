from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilec.ir.guards import Guard
from tilec.manifest.guards import admitted, canonical, first_uncovered, implies, parse_guard

RANGE = range(1, 400)
guards = st.one_of(
    st.integers(1, 60).map(lambda n: Guard(eq=n)),
    st.builds(
        lambda div, low, width: parse_guard(f"%{div},>={low},<={low + width}"),
        st.sampled_from([1, 2, 3, 4, 6]),
        st.integers(1, 40),
        st.integers(6, 60),
    ),
    st.builds(
        lambda div, low: parse_guard(f"%{div},>={low}"), st.sampled_from([1, 2, 3, 4, 6]), st.integers(1, 40)
    ),
)


@pytest.mark.parametrize(
    ("text", "guard"),
    [
        (64, Guard(eq=64)),
        ("64", Guard(eq=64)),
        ("dynamic", Guard()),
        ("1..64", Guard(min=1, max=64)),
        (">=128", Guard(min=128)),
        ("<=64", Guard(max=64)),
        ("%16", Guard(div=16)),
        ("%16,>=128", Guard(div=16, min=128)),
        ("%4, %6", Guard(div=12)),
        ("48..63,%24", Guard(eq=48)),
    ],
)
def test_grammar(text: object, guard: Guard) -> None:
    assert parse_guard(text) == guard


@pytest.mark.parametrize("text", ["", "64..", "%x", "-3", ">128", "1...4", "dynamic,%4", 1.5, True, None])
def test_what_is_no_guard(text: object) -> None:
    with pytest.raises(ValueError, match="is no guard"):
        parse_guard(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("*", "dynamic"),
        ("Dynamic", "dynamic"),
        ("1-64", "1..64"),
        ("1:64", "1..64"),
        ("1...64", "1..64"),
        ("[1, 64]", "1..64"),
        (">64", ">=65"),
        ("< 64", "<=63"),
        ("128..", ">=128"),
        ("64+", ">=64"),
        ("..64", "<=64"),
        ("== 16", "16"),
    ],
)
def test_what_was_meant_is_asked(text: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f'did you mean "{meant}"'):
        parse_guard(text)
    assert parse_guard(meant)


@pytest.mark.parametrize("text", ["64..1", "%16,<=15", 0, -4, "0", "%64,1..63"])
def test_what_can_never_hold(text: object) -> None:
    with pytest.raises(ValueError, match="can never hold"):
        parse_guard(text)


def test_zero_divisor_is_refused() -> None:
    with pytest.raises(ValueError, match="divides by zero"):
        parse_guard("%0")


@pytest.mark.parametrize(
    "text", [2**63, "1..99999999999999999999", f">={2**63}", f"%{2**63}", f"%{2**40},%{3**20}"]
)
def test_numbers_are_those_that_libraries_hold(text: object) -> None:
    with pytest.raises(ValueError, match="has a number beyond 9223372036853727231"):
        parse_guard(text)


@given(guards)
def test_spelling_round_trips(guard: Guard) -> None:
    assert admitted(parse_guard(str(guard))) == admitted(guard)


@given(guards, guards)
def test_implication_is_inclusion(a: Guard, b: Guard) -> None:
    included = all(b.admits(value) for value in RANGE if a.admits(value))
    assert implies(a, b) == included


@given(guards, guards)
def test_what_is_admitted_compares_equal_where_it_is_the_same(a: Guard, b: Guard) -> None:
    a, b = canonical(a), canonical(b)
    same = [a.admits(value) for value in RANGE] == [b.admits(value) for value in RANGE]
    assert (admitted(a) == admitted(b)) == same


@given(guards, guards)
def test_both_admit_what_each_admits(a: Guard, b: Guard) -> None:
    if a.eq is None and b.eq is None:
        assert all((a & b).admits(value) == (a.admits(value) and b.admits(value)) for value in RANGE)
    else:
        assert a & b == (a if a.eq is not None else b)


@given(guards)
def test_smallest_is_the_least_admitted_value(guard: Guard) -> None:
    assert guard.smallest() == next(value for value in RANGE if guard.admits(value))


@given(guards)
def test_arrays_and_reasons_follow_the_same_rule(guard: Guard) -> None:
    admitted = [guard.admits(value) for value in RANGE]
    assert np.array_equal(np.broadcast_to(guard.admits(np.array(RANGE)), len(RANGE)), admitted)
    assert [not guard.rejection(value) for value in RANGE] == admitted
    assert Guard(**guard.parts) == guard


@given(st.lists(guards, min_size=1, max_size=5))
def test_first_uncovered_is_the_least_value_that_nobody_admits(several: list[Guard]) -> None:
    brute = next((value for value in RANGE if not any(guard.admits(value) for guard in several)), None)
    assert first_uncovered(several) == brute


def test_many_pinned_values_are_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    plain = Guard.admits
    monkeypatch.setattr(Guard, "admits", lambda self, value: asked.append(value) or plain(self, value))
    pinned = [Guard(eq=value) for value in range(1, 2001)]
    assert first_uncovered([*pinned, Guard(div=3)]) == 2002
    assert first_uncovered([*pinned, Guard()]) is None
    assert len(asked) <= 2


def test_divisors_alone_never_cover() -> None:
    assert first_uncovered([parse_guard("%2"), parse_guard("%3")]) == 1
    assert first_uncovered([parse_guard("1..64"), parse_guard("%2")]) == 65
    assert first_uncovered([parse_guard("1..64"), parse_guard(">=65")]) is None
