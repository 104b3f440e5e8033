from __future__ import annotations

import pytest
from tvm import tirx

from tilec.ir.nodes import Kernel
from tilec.lowering.analysis.facts import Facts
from tilec.lowering.analysis.grounds import Grounds


@pytest.fixture
def names():
    return [tirx.Var(name, "int32") for name in ("a", "b", "c")]


def number(value: int) -> tirx.IntImm:
    return tirx.const(value, "int32")


def test_what_is_learnt_of_others_leaves_the_ground(names):
    a, b, c = names
    grounds = Grounds()
    grounds.learn_range(a, (number(0), b), (0, 99))
    before = grounds.of(a + 1)
    grounds.learn_range(c, (), (0, 7))
    grounds.learn_value(c, number(3))
    assumed = grounds.assume(c > 2, True)
    assert grounds.of(a + 1) == before
    grounds.restore(assumed)
    assert grounds.of(a + 1) == before


def test_what_is_learnt_of_a_variable_or_its_ends_is_another_ground(names):
    a, b, _ = names
    grounds = Grounds()
    grounds.learn_range(a, (number(0), b), (0, 99))
    found = [grounds.of(a)]
    grounds.learn_range(b, (), (0, 7))
    found.append(grounds.of(a))
    grounds.learn_value(b, number(3))
    found.append(grounds.of(a))
    grounds.learn_range(b, (), (0, 8))
    found.append(grounds.of(a))
    assert len(set(found)) == len(found)
    grounds.learn_range(b, (), (0, 7))
    assert grounds.of(a) == found[2]


def test_an_assumption_counts_for_what_shares_a_variable_with_it(names):
    a, b, c = names
    grounds = Grounds()
    free, joined = grounds.of(c), grounds.of(a)
    outer = grounds.assume(a < b, True)
    under = grounds.of(a)
    assert (grounds.of(c), under == joined) == (free, False)
    grounds.assume(b < c, False)  # joins c to a, by b
    both = grounds.of(c)
    assert both == grounds.of(a)
    assert both not in (free, under)
    grounds.restore(outer)
    assert grounds.of(a) == joined
    grounds.assume(a < b, False)
    assert grounds.of(a) not in (joined, under)


def test_ranges_count_in_the_order_in_which_they_were_learnt(names):
    a, b, _ = names
    grounds = Grounds()
    for var in (a, b, a):
        grounds.learn_range(var, (), (0, 7))
    last = grounds.of(a + b)
    grounds.learn_range(b, (), (0, 7))
    assert grounds.of(a + b) != last
    grounds.learn_range(a, (), (0, 7))
    assert grounds.of(a + b) == last


def test_a_proof_is_made_once_for_all_that_leaves_its_ground(names, monkeypatch):
    a, b, c = names
    facts = Facts(Kernel("k", (), (), ()))
    asked: list[str] = []
    decide = Facts._decide
    monkeypatch.setattr(Facts, "_decide", lambda self, cond: asked.append(str(cond)) or decide(self, cond))
    facts.bind_range(a, 0, 8)
    assert facts.prove(a < 8) is True
    facts.bind_range(c, 0, b)
    with facts.assume(c > 2):
        assert facts.prove(a < 8) is True
    assert len(asked) == 1
    facts.bind_range(a, 0, 9)
    assert facts.prove(a < 8) is None
    assert len(asked) == 2
