"""Wide random programs on every road that this machine has: the bits of the interpreter.
``python tests/support/seeded/wide_roads.py FIRST LAST`` looks at many."""

from __future__ import annotations

import pytest
from breadth import parametrized
from wide_roads import ROADS, check

FEW, MANY = range(6), range(6, 60)


@parametrized("seed", FEW, fast=[0, 3])
def test_program(seed):
    check(seed)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", MANY)
def test_many_programs(seed):
    check(seed, [ROADS[seed % len(ROADS)]])
