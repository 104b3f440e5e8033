"""Costs that are alike become one tree, which is each of them to the last bit."""

from __future__ import annotations

import ctypes
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilec.costs import SHARE, cost, cost_tree
from tilec.package.tables.cost_lanes import LANES, Column, Joint, Tree, together
from tilec.sizes import NEGATE, Name

UNITS = 132
RUN = {
    "+": lambda a, b: single(a + b),
    "-": lambda a, b: single(a - b),
    "*": lambda a, b: single(a * b),
    "min": min,
    "max": max,
    NEGATE: lambda a: -a,
    "ceil": math.ceil,
}


def single(value: float) -> float:
    """The nearest number of single precision."""
    return ctypes.c_float(value).value


def value(tree: Tree, lane: int, dims: dict[str, int]) -> float:
    """What a tree is for one of its costs."""
    if isinstance(tree, Column):
        return tree.values[lane]
    if isinstance(tree, Name):
        return single((1 - 2.0**-22) / UNITS if tree.name == SHARE else dims[tree.name])
    return RUN[tree.op](*(value(part, lane, dims) for part in tree.parts))


def groups(*texts: str) -> list[tuple[int, ...]]:
    return [each.numbers for each in together([cost_tree(text) for text in texts])]


ALIKE = (
    "2.5 + waves(ceil(M / 64) * ceil(N / 96)) * (0.5 + 0.1 * ceil(K / 64))",
    "waves(ceil(M / 16) * ceil(N / 128) * 8 * 1.1) * (3.2 + 0.1 * ceil(ceil(K / 128) / 8))",
    "1.25 + waves(ceil(M / 64) * ceil(N / 96) / 2) * (0.25 * ceil(K / 32)) + 0.0625 * (M * K * 2e-06 + N)",
    "rounds(ceil(M / 64) * ceil(N / 64)) * ceil(K / 64) * (0.3187)",
    "rounds(ceil(M / 16) * ceil(N / 64)) * ceil(K / 64) * (0.2 + 0.05 * min(1, ceil(K / 16) * 16 - K))",
    "3 + rounds(ceil(M / 16) * 2) * ceil(K / 64) * (0.1 * min(1, ceil(K / 64) * 64 - K)) + 0.5 * (M + N)",
)
DIM = st.integers(0, 1 << 20)


@given(m=DIM, n=DIM, k=DIM)
def test_each_lane_is_its_cost(m: int, n: int, k: int) -> None:
    dims = {"M": m, "N": n, "K": k}
    for group in together([cost_tree(text) for text in ALIKE]):
        for lane, number in enumerate(group.numbers):
            assert value(group.tree, lane, dims) == cost(ALIKE[number], dims, UNITS)


def test_terms_that_one_lacks_are_0() -> None:
    (group,) = together([cost_tree("1 + M * 2"), cost_tree("M * 3"), cost_tree("4")])
    assert isinstance(group.tree, Joint)
    assert group.tree.parts[0] == Column((1.0, 0.0, 4.0))
    assert value(group.tree, 2, {"M": 7}) == 4


def test_factors_that_one_lacks_are_1() -> None:
    (group,) = together([cost_tree("M * 3 * N"), cost_tree("M * N * 5")])
    assert [value(group.tree, lane, {"M": 7, "N": 11}) for lane in (0, 1)] == [231, 385]


def test_what_is_rounded_once_is_rounded_again() -> None:
    (group,) = together([cost_tree("ceil(M / 64)"), cost_tree("ceil(ceil(M / 32) / 3)")])
    assert group.numbers == (1, 0), "the longest first"
    assert [value(group.tree, lane, {"M": 200}) for lane in (0, 1)] == [3, 4]


@pytest.mark.parametrize("other", ["min(M, 3)", "ceil(N / 64)", "M * N"])
def test_other_forms_stand_alone(other: str) -> None:
    assert set(groups("max(M, 2)", other, "max(M, 5)")) == {(0, 2), (1,)}


def test_what_few_have_is_in_few_groups() -> None:
    """Of sixteen, one in four with a quotient: those four are in one group, whatever their order."""
    texts = [f"{at} + N * 2" + (" + 3 / max(1, M)" if at % 4 == 0 else "") for at in range(2 * LANES)]
    long = {at for at in range(2 * LANES) if at % 4 == 0}
    assert sorted(len(long & set(group)) for group in groups(*texts)) == [0, len(long)]


def test_a_vector_has_room_for_so_many() -> None:
    assert list(map(len, groups(*(f"M * {each} + 1" for each in range(2, LANES + 3))))) == [LANES, 1]
