"""What answers about expressions rest on: of all that is known, the part that is about their variables.

A loop that is bound, or an assumption that ends, changes the state of knowledge, and leaves what most
expressions mention as it was. Answers about these hold on, and in each state that comes to the same ground.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from tvm.tirx.analysis import undefined_vars

from tilec.lowering.analysis.answers import Answers

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


class _Bound(NamedTuple):
    """What is known of one variable: when it was learnt, what tells it from anything else that is known of
    one, and the variables that it mentions. The variable is kept, so that no other gets its address."""

    var: Var
    turn: int
    told: tuple[Hashable, ...]
    mentions: tuple[Var, ...]


class _Assumption(NamedTuple):
    """One condition that holds or does not: a number for it, its variables and their addresses."""

    number: int
    mentions: tuple[Var, ...]
    addresses: frozenset[int]


class Grounds:
    """Ranges and values of variables, and the assumptions that hold."""

    def __init__(self) -> None:
        self._turns = itertools.count()
        self._numbers = itertools.count()
        self._forms: Answers[int] = Answers()
        self._conditions: Answers[int] = Answers()
        self._ranges: dict[int, _Bound] = {}
        self._values: dict[int, _Bound] = {}
        self._assumed: tuple[_Assumption, ...] = ()

    def learn_range(self, var: Var, ends: Iterable[Expr], interval: tuple[int, int]) -> None:
        """``var`` lies between ``ends``, and between the numbers of ``interval``."""
        self._ranges[var.__chandle__()] = self._bound(var, tuple(ends), interval)

    def learn_value(self, var: Var, value: Expr) -> None:
        """``var`` is a name of ``value``."""
        self._values[var.__chandle__()] = self._bound(var, (value,), ())

    def _bound(self, var: Var, told: tuple[Expr, ...], numbers: tuple[int, ...]) -> _Bound:
        forms = (self._forms.of(None, expr, lambda _: next(self._numbers)) for expr in told)
        mentions = tuple(itertools.chain.from_iterable(map(undefined_vars, told)))
        return _Bound(var, next(self._turns), (var.__chandle__(), *numbers, *forms), mentions)

    def assume(self, cond: Expr, value: bool) -> tuple[_Assumption, ...]:
        """Adds that ``cond`` is ``value``. Gives the assumptions before, for `restore`."""
        before, mentions = self._assumed, tuple(undefined_vars(cond))
        number = self._conditions.of((value, self.of(cond)), cond, lambda _: next(self._numbers))
        addresses = frozenset(var.__chandle__() for var in mentions)
        self._assumed = (*before, _Assumption(number, mentions, addresses))
        return before

    def restore(self, assumed: tuple[_Assumption, ...]) -> None:
        """The assumptions are again those of before an `assume`."""
        self._assumed = assumed

    def of(self, expr: Expr) -> Hashable:
        """The ground of all that can be said of ``expr``: equal ones give equal answers. Ranges stand in the
        order in which they were learnt, as proofs go through them."""
        seen, ranges, values = set[int](), list[_Bound](), list[_Bound]()
        self._reach(undefined_vars(expr), seen, ranges, values)
        met, pending = list[_Assumption](), self._assumed
        while near := [each for each in pending if not each.addresses or not seen.isdisjoint(each.addresses)]:
            met += near
            pending = tuple([each for each in pending if each not in near])
            for each in near:
                self._reach(each.mentions, seen, ranges, values)
        ranges.sort(key=lambda bound: bound.turn)
        return (
            tuple(sorted(each.number for each in met)),
            tuple([bound.told for bound in ranges]),
            frozenset(bound.told for bound in values),
        )

    def _reach(
        self, names: Iterable[Var], seen: set[int], ranges: list[_Bound], values: list[_Bound]
    ) -> None:
        """Adds what is known of names, and of those that this mentions."""
        left = list(names)
        while left:
            address = left.pop().__chandle__()
            if address in seen:
                continue
            seen.add(address)
            for kept, known in ((ranges, self._ranges), (values, self._values)):
                bound = known.get(address)
                if bound is not None:
                    kept.append(bound)
                    left.extend(bound.mentions)
