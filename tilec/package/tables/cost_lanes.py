"""Costs that a vector computes at once: one tree for several, with a column where their numbers differ.

Costs of schedules are alike. Where one has a term or a factor that another one lacks, a column has a 0 or 1,
which changes no bit of a sum or product; and a whole number stays what it is when it is rounded again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product, zip_longest
from typing import TypeAlias, Union

from tilec.sizes import Apply, Literal, Name, Node

#: Costs that are computed at once.
LANES = 16


@dataclass(frozen=True)
class Column:
    """A leaf: one number for each of several costs."""

    values: tuple[float, ...]

    @property
    def varies(self) -> bool:
        """Whether the costs differ in it."""
        return len(set(self.values)) > 1


class Joint:
    """An operation of several costs. ``work``: how many operations it has; ``varies``: whether costs differ
    in one of its numbers."""

    def __init__(self, op: str, *parts: Tree) -> None:
        self.op, self.parts = op, parts
        self.varies: bool = any(not isinstance(part, Name) and part.varies for part in parts)
        self.work: int = 1 + sum(map(_work, parts))


Tree: TypeAlias = Union[Column, Name, Joint]  # noqa: UP007 (evaluated on 3.10)
_Widened: TypeAlias = Callable[["tuple[float, ...]"], "tuple[float, ...]"]


@dataclass(frozen=True)
class Alike:
    """The tree of several costs, and the number of each in its list."""

    tree: Tree
    numbers: tuple[int, ...]

    def parts(self, width: int) -> list[Alike]:
        """The same for vectors of ``width`` numbers: one behind the other, as not every compiler deals well
        with vectors that are longer than those of the processor."""
        return [self._lanes(slice(start, start + width)) for start in range(0, len(self.numbers), width)]

    def _lanes(self, lanes: slice) -> Alike:
        return Alike(_in_lanes(self.tree, lambda values: values[lanes]), self.numbers[lanes])


def together(costs: Sequence[Node]) -> list[Alike]:
    """All costs, at most `LANES` at once: each with those beside which it adds the fewest operations, the
    longest first, so that those that only some have are in few groups."""
    found: list[Alike] = []
    for number, tree in sorted(enumerate(map(_tree, costs)), key=lambda each: -_work(each[1])):
        joined = [(at, _joined(group, tree, number)) for at, group in enumerate(found)]
        ways = [(_work(new.tree) - _work(found[at].tree), at, new) for at, new in joined if new]
        ways.append((_work(tree), len(found), Alike(tree, (number,))))
        _, at, group = min(ways, key=lambda way: way[:2])
        found[at : at + 1] = [group]
    return found


def _joined(group: Alike, tree: Tree, number: int) -> Alike | None:
    """A group with one more cost; None where it is full, or the cost is of another form."""
    count = len(group.numbers)
    both = _merged(group.tree, tree, count) if count < LANES else None
    return None if both is None else Alike(both, (*group.numbers, number))


def _tree(node: Node) -> Tree:
    if isinstance(node, Apply):
        return Joint(node.op, *map(_tree, node.parts))
    return Column((float(node.value),)) if isinstance(node, Literal) else node


def _work(tree: Tree) -> int:
    return tree.work if isinstance(tree, Joint) else 0


# ---- one more cost beside ``count`` others ----


def _merged(one: Tree, other: Tree, count: int) -> Tree | None:
    """The tree of ``count`` costs with that of another cost in one more lane; None where forms differ."""
    if isinstance(one, Column) and isinstance(other, Column):
        return Column(one.values + other.values)
    if _is(one, "+") or _is(other, "+"):
        return _sums(one, other, count)
    if _is(one, "*") or _is(other, "*"):
        return _products(one, other, count)
    if not isinstance(one, Joint) or not isinstance(other, Joint):
        return one if one == other else None
    if one.op != other.op:
        return None
    return _of_parts(one, other, count) or (_rounded_again(one, other, count) if one.op == "ceil" else None)


def _of_parts(one: Joint, other: Joint, count: int) -> Tree | None:
    parts = [_merged(*pair, count) for pair in zip(one.parts, other.parts, strict=True)]
    found = [part for part in parts if part is not None]
    return Joint(one.op, *found) if len(found) == len(parts) else None


def _rounded_again(one: Joint, other: Joint, count: int) -> Tree | None:
    """Of two that are rounded up, of which one is what the other rounds up again: with a factor of 1."""
    pairs = ((one.parts[0], _times(other, 1)), (_times(one, count), other.parts[0]))
    found = next((each for each in (_products(*pair, count) for pair in pairs) if each), None)
    return None if found is None else Joint("ceil", found)


def _times(tree: Tree, count: int) -> Tree:
    return Joint("*", tree, _ones(count))


# ---- products ----


@dataclass(frozen=True)
class _Factors:
    """What is multiplied from the left on: numbers before each factor that is none, and after the last."""

    numbers: tuple[tuple[Column, ...], ...]
    others: tuple[Tree, ...]

    def with_last(self) -> _Factors:
        """The last number as a factor, as it may be a sum elsewhere."""
        *before, last = self.numbers
        return _Factors((*before, last[:-1], ()), (*self.others, last[-1])) if last else self


def _products(one: Tree, other: Tree, count: int) -> Tree | None:
    """Factors that are no numbers come in the same order; of numbers between them some are 1."""
    left, right = _factors(one), _factors(other)
    if len(left.others) < len(right.others):
        left = left.with_last()
    elif len(left.others) > len(right.others):
        right = right.with_last()
    if len(left.others) != len(right.others):
        return None
    both = [_merged(*pair, count) for pair in zip(left.others, right.others, strict=True)]
    factors: list[Tree] = []
    for numbers, new, factor in zip(left.numbers, right.numbers, (*both, _ones(1)), strict=True):
        if factor is None:
            return None
        factors += [*_numbers(numbers, new, count), factor]
    return _chain("*", factors[:-1])


def _factors(tree: Tree) -> _Factors:
    numbers: list[tuple[Column, ...]] = [()]
    others: list[Tree] = []
    for part in _spine("*", tree):
        if isinstance(part, Column):
            numbers[-1] += (part,)
        else:
            others.append(part)
            numbers.append(())
    return _Factors(tuple(numbers), tuple(others))


def _numbers(old: Sequence[Column], new: Sequence[Column], count: int) -> list[Tree]:
    pairs = zip_longest(old, new)
    return [Column((a or _ones(count)).values + (b or _ones(1)).values) for a, b in pairs]


# ---- sums ----

#: Terms so far, with the operations that they have; None where forms differ.
_Reached: TypeAlias = "tuple[int, list[Tree]] | None"


def _sums(one: Tree, other: Tree, count: int) -> Tree | None:
    """Terms that both have come in the same order: those that leave the fewest operations."""
    left, right = _spine("+", one), _spine("+", other)
    old = [_alone(part, lambda values: (*values, values[-1]), (*[1.0] * count, 0.0)) for part in left]
    new = [_alone(part, lambda values: values * (count + 1), (*[0.0] * count, 1.0)) for part in right]
    best: dict[tuple[int, int], _Reached] = {(0, 0): (0, [])}
    for i, j in list(product(range(len(left) + 1), range(len(right) + 1)))[1:]:
        both = _merged(left[i - 1], right[j - 1], count) if i and j else None
        ways = [
            _longer(best.get((i - 1, j)), old[i - 1] if i else None),
            _longer(best.get((i, j - 1)), new[j - 1] if j else None),
            _longer(best.get((i - 1, j - 1)), both),
        ]
        best[i, j] = min((way for way in ways if way), key=lambda way: way[0], default=None)
    found = best[len(left), len(right)]
    return _chain("+", found[1]) if found else None


def _longer(reached: _Reached, term: Tree | None) -> _Reached:
    if reached is None or term is None:
        return None
    return (reached[0] + 1 + _work(term), [*reached[1], term])


def _alone(term: Tree, widened: _Widened, mask: tuple[float, ...]) -> Tree:
    """A term that only the old costs have or only the new one has, and 0 for the others."""
    factors = _spine("*", _in_lanes(term, widened))
    at = next((at for at, each in enumerate(factors) if isinstance(each, Column)), None)
    if at is None:
        return _chain("*", [*factors, Column(mask)])
    number = factors[at]
    assert isinstance(number, Column)
    kept = Column(tuple(value * is_there for value, is_there in zip(number.values, mask, strict=True)))
    return _chain("*", [*factors[:at], kept, *factors[at + 1 :]])


def _in_lanes(tree: Tree, widened: _Widened) -> Tree:
    """With other numbers: for one more lane, whichever, or for some alone."""
    if isinstance(tree, Name):
        return tree
    if isinstance(tree, Column):
        return Column(widened(tree.values))
    return Joint(tree.op, *(_in_lanes(part, widened) for part in tree.parts))


# ---- chains of sums and products from the left on ----


def _spine(op: str, tree: Tree) -> list[Tree]:
    """The parts of a chain; a tree of another kind alone."""
    parts: list[Tree] = []
    while isinstance(tree, Joint) and tree.op == op:
        tree, last = tree.parts
        parts.append(last)
    return [tree, *reversed(parts)]


def _chain(op: str, parts: Sequence[Tree]) -> Tree:
    return reduce(lambda left, right: Joint(op, left, right), parts)


def _is(tree: Tree, op: str) -> bool:
    return isinstance(tree, Joint) and tree.op == op


def _ones(count: int) -> Column:
    return Column((1.0,) * count)
