"""Which schedules are compared: those of one list whose guards may hold together."""

from __future__ import annotations

import pytest

from tilec.manifest.guards import parse_guard
from tilec.package.dispatch.choices import Calls, calls, choices, taken

LISTED = {"M": "dynamic"}


def of(cost: str = "1", align: int = 0, listed: str = "dynamic", target: str = "sm_90a", **own: str) -> Calls:
    guards = {name: parse_guard(text) for name, text in own.items()}
    return calls(target, guards, {"M": parse_guard(listed)}, align, cost)


def compared(*served: Calls) -> list[list[int]]:
    """For each, the places of those that are compared."""
    return [[at for run in choice for at in run] for choice in choices(served)]


def test_guards_that_may_hold_together_are_compared() -> None:
    low, high, some, rest = of(M="1..16"), of(M=">=17"), of(M="9..32", N="%8"), of()
    assert compared(low, high, some, rest) == [[0, 2, 3], [1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("one", "other", "are"),
    [
        ("8", "%4", True),
        ("8", "%16", False),
        ("8", "9", False),
        ("1..16", ">=17", False),
        ("%8", "<=4", True),  # a dim may be 0
        ("%8,1..9", "%3,1..9", False),
    ],
)
def test_what_two_guards_have_in_common(one: str, other: str, are: bool) -> None:
    assert (len(compared(of(M=one), of(M=other))[0]) == 2) == are


@pytest.mark.parametrize("other", [of(cost=""), of(listed=">=1"), of(target="sm_80")])
def test_other_lists_and_targets_are_not_compared(other: Calls) -> None:
    assert compared(of(M="1..16"), other) == [[0], [1]]


def test_demands_on_alignment_part_a_list_in_runs() -> None:
    wide, narrow = of(align=16), of()
    assert choices([wide, wide, narrow]) == [(range(2), range(2, 3))] * 3


def test_of_several_that_cost_the_same_the_first_is_taken() -> None:
    (choice, *_) = choices([of(M="1..16"), of(), of()])
    assert taken(choice, lambda at: True, ["2", "2", "3"], {"M": 1}, 1, ()) == 0
    assert taken(choice, lambda at: at > 0, ["1", "3", "2"], {"M": 1}, 1, ()) == 2
    told_apart = ["2", "on(zen4, 1, 3)", "2"]
    assert taken(choice, lambda at: True, told_apart, {"M": 1}, 1, ("zen4",)) == 1
