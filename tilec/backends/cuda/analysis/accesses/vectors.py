"""Which accesses move several neighbouring elements at once: how many, by where rows begin and how far they
go.

    for j in parallel(n): Y[b * 64 + j] = X[b * 64 + j]     float16: 8 elements, 16 bytes at a multiple of 16

What is asked is proved: that neighbours of the variable are neighbours in memory, that the first of them lies
at a multiple of the width, and that bounds and conditions come out alike for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tvm import ir as tvm_ir
from tvm import tirx
from tvm.ir import Call, Var

from tilec.ir.exprs import (
    choice_of,
    conjuncts,
    dtype_of,
    int_value,
    linear_in,
    operands,
    same_all,
    substitute,
    transform,
    uses,
)
from tilec.lowering.analysis.conditions import gap
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.lowering.analysis.accesses import Access
    from tilec.lowering.analysis.facts import Facts

#: Bytes of the widest access of one lane.
WIDEST = 16
#: Elements from which on the two vectors that hold them are fewer accesses.
HELD_BY_TWO = 4
#: Distances of the elements that a loop over pairs, or over complex or four-fold numbers, reads.
_STRIDES = (2, 4)
#: More vectors than any loop has.
_MOST = 1 << 20


def widest(buffer: Var, limit: int) -> int:
    """The most elements of ``buffer`` that one access moves, no more than ``limit``."""
    return max(1, min(limit, WIDEST // element_bytes(str(buffer.dtype))))


def vector_width(buffer: Var, indices: Sequence[Expr], var: Var, limit: int, facts: Facts) -> int:
    """How many elements one access along ``var`` may move: a power of two up to ``limit``, 1 for none.

    All of them are inside the buffer or none is, their address is aligned, given that ``var`` starts at a
    multiple of the width. Base addresses are aligned to `WIDEST`."""
    width, indices = widest(buffer, limit), [_known(index, facts) for index in indices]
    while width > 1 and not _is_vector(buffer, indices, var, width, facts):
        width //= 2
    return width


def _is_vector(buffer: Var, indices: Sequence[Expr], var: Var, width: int, facts: Facts) -> bool:
    if not indices:
        return False
    *rows, last = (_step(index, var, width, facts) for index in indices)
    whole = divides(width, buffer.shape[-1], facts) or (not rows and _is_inside(buffer, indices[-1], facts))
    return last == 1 and not any(row != 0 for row in rows) and whole and _rows_align(buffer, width, facts)


def holds_vector(buffer: Var, facts: Facts) -> bool:
    """Whether a tensor has one axis and is known to hold a vector: of those that may be shorter nobody has
    said that they begin at vectors."""
    extents = buffer.shape
    return len(extents) == 1 and facts.prove(extents[0] >= widest(buffer, WIDEST)) is True


def begins_anywhere(buffer: Var, indices: Sequence[Expr], var: Var, limit: int, facts: Facts) -> int:
    """How many elements the vectors have that hold neighbours along ``var``, wherever in a row these begin:
    each such vector lies in its row or outside of it; 1 for none."""
    *rows, last = (_known(index, facts) for index in indices)
    linear = linear_in(last, [var])
    if any(uses(row, (var,)) for row in rows) or not linear or int_value(linear[0]) != 1:
        return 1
    width = widest(buffer, limit)
    while width > 1 and not (divides(width, buffer.shape[-1], facts) and _rows_align(buffer, width, facts)):
        width //= 2
    return width


def _is_inside(buffer: Var, index: Expr, facts: Facts) -> bool:
    """Whether no element of a tensor of one axis lies behind its end, whatever the variables are."""
    return facts.prove(index < buffer.shape[0]) is True


def _step(index: Expr, var: Var, width: int, facts: Facts) -> int | None:
    """How far an index moves from each value of ``var`` to the next, of ``width`` from a multiple of it on: 1
    from a multiple of ``width`` on, too, or 0. None for neither. Numbers that are taken apart into rows and
    columns (``p // n``, ``p % n``) stay in a row where n is a multiple. A choice moves as both of its sides
    do where all of them choose alike."""
    if not uses(index, (var,)):
        return 0
    linear = linear_in(index, [var])
    if linear and int_value(linear[0]) == 1 and divides(width, linear[1], facts):
        return 1
    if isinstance(index, tirx.Cast):
        return _step(index.value, var, width, facts)
    choice = choice_of(index)
    if choice is not None:
        cond, *values = choice
        first, other = (_step(value, var, width, facts) for value in values)
        return first if first == other and agree(cond, var, width, facts) else None
    if isinstance(index, (tirx.FloorDiv, tirx.FloorMod)) and not uses(index.b, (var,)):
        inner = _step(index.a, var, width, facts)
        if inner == 1 and divides(width, index.b, facts):
            return 0 if isinstance(index, tirx.FloorDiv) else 1
        return 0 if inner == 0 else None
    if isinstance(index, Call):
        return None  # its value may be another one in each call
    sides = tuple(_step(each, var, width, facts) for each in operands(index))
    if isinstance(index, (tirx.Add, tirx.BitwiseXor)) and sides in ((0, 1), (1, 0)):
        return 1 if divides(width, index.b if sides[0] else index.a, facts) else None
    return 0 if sides and all(side == 0 for side in sides) else None


def _known(index: Expr, facts: Facts) -> Expr:
    """An index or a condition without names of known values, in quotients and remainders."""
    return transform(facts.inline(index), _quotient)


def _quotient(index: Expr) -> Expr | None:
    """A shift to the right as the quotient that it is, a mask of the lowest bits as the remainder."""
    number = int_value(index.b) if isinstance(index, (tirx.RShift, tirx.BitwiseAnd)) else None
    if number is None or not 0 <= number < _MOST:
        return None
    inner = transform(index.a, _quotient)
    if isinstance(index, tirx.RShift) and number < _MOST.bit_length():
        return tirx.floordiv(inner, tirx.const(1 << number, dtype_of(inner)))
    if isinstance(index, tirx.BitwiseAnd) and number & (number + 1) == 0:
        return tirx.floormod(inner, tirx.const(number + 1, dtype_of(inner)))
    return None


class Comb(NamedTuple):
    """Elements of a row that lie ``stride`` apart along a variable: the one with the ``number`` of each run
    of as many neighbours. The runs begin ``start`` behind the first element of the row, which ``rows`` name
    and which has ``length`` elements."""

    stride: int
    number: int
    start: Expr
    rows: tuple[Expr, ...]
    length: Expr

    def width(self, buffer: Var, count: int, limit: int, facts: Facts) -> int:
        """How many neighbours one access moves of those that ``count`` values of the variable name together,
        the first value a multiple of that; 0 where no access moves a whole run."""
        width = widest(buffer, min(limit, self.stride * count))
        while width >= self.stride and not (
            divides(width, self.start, facts)
            and divides(width, self.length, facts)
            and _rows_align(buffer, width, facts)
        ):
            width //= 2
        return width if width >= self.stride else 0


def combs(items: Sequence[Access], var: Var, facts: Facts) -> dict[Access, tuple[Comb, tuple[Access, ...]]]:
    """The accesses that have a comb along ``var``, each with all those, in the order of their numbers, that
    name elements of the same runs: every one of a run where they are writes, half of them where they are
    reads, which move the others as well."""
    found = [(item, comb) for item in items if (comb := _comb(item, var, facts))]
    made: dict[Access, tuple[Comb, tuple[Access, ...]]] = {}
    for item, comb in found:
        own = {other.number: each for each, other in found if _share_runs(each, other, item, comb)}
        if len(own) * (1 if item.is_write else 2) >= comb.stride:
            made[item] = comb, tuple(own[number] for number in sorted(own))
    return made


def _share_runs(item: Access, comb: Comb, other: Access, beside: Comb) -> bool:
    kind = item.buffer.same_as(other.buffer) and item.is_write == other.is_write
    return kind and same_all((comb.start, *comb.rows), (beside.start, *beside.rows))


def _comb(item: Access, var: Var, facts: Facts) -> Comb | None:
    """The comb of an access, along the last axis of a tensor or along the last two, of which the last one
    has a few elements."""
    *rows, place = (_known(index, facts) for index in item.indices)
    length, last = item.buffer.shape[-1], int_value(item.buffer.shape[-1])
    if rows and last in _STRIDES and int_value(place) is not None and not len(item.buffer.strides):
        *rows, above = rows
        place, length = above * length + place, item.buffer.shape[-2] * length
    linear = [] if any(uses(row, (var,)) for row in rows) else linear_in(place, [var])
    stride = int_value(linear[0]) if linear else None
    if stride not in _STRIDES:
        return None
    starts = (facts.simplify(linear[1] - number) for number in range(stride))
    for number, start in enumerate(starts):
        if divides(stride, start, facts):
            return Comb(stride, number, start, tuple(rows), length)
    return None


def agree(cond: Expr, var: Var, width: int, facts: Facts) -> bool:
    """Whether a condition has one value for ``width`` values of ``var``, the first a multiple of that."""
    return all(
        not uses(part, (var,)) or _ends_between(part, var, width, facts) or _is_alike(part, var, width, facts)
        for part in conjuncts(cond)
    )


def _is_alike(cond: Expr, var: Var, width: int, facts: Facts) -> bool:
    """Whether what a condition compares stays as it is or has its bound between vectors, or each of several
    conditions in it is so."""
    if isinstance(cond, (tirx.Or, tirx.Not)):
        return all(agree(part, var, width, facts) for part in operands(cond))
    cond = _known(cond, facts)
    if isinstance(cond, (tirx.LT, tirx.GE, tirx.GT, tirx.LE)):
        low, high = (cond.a, cond.b) if isinstance(cond, (tirx.LT, tirx.GE)) else (cond.b, cond.a)
        sides = _step(low, var, width, facts), _step(high, var, width, facts)
        if sides in ((1, 0), (0, 1)):
            return divides(width, high if sides[0] else low + 1, facts)
    return _step(cond, var, width, facts) == 0


def _ends_between(bound: Expr, var: Var, width: int, facts: Facts) -> bool:
    """Whether a bound of ``var`` is at a multiple of ``width``, or one of what stays (``var // n``)."""
    distance = gap(bound)
    if distance is None:
        return False
    distance = _known(distance, facts)
    linear = linear_in(distance, [var])
    step = int_value(linear[0]) if linear else None
    if not linear or step not in (1, -1):
        return _step(distance, var, width, facts) == 0
    return divides(width, linear[1] if step == -1 else linear[1] - 1, facts)


def span(
    buffer: Var, indices: Sequence[Expr], var: Var, count: int, limit: int, facts: Facts
) -> tuple[int, tuple[int, ...]] | None:
    """Where ``count`` values of ``var``, the first a multiple of that, read elements of one short run: how
    many elements one access moves, and the number in the run of each value's element. Several values may
    share an element, as where several numbers are in a byte; None for any other access."""
    if not indices:
        return None
    *rows, last = (_known(index, facts) for index in indices)
    if any(uses(row, (var,)) for row in rows):
        return None
    start, steps = _steps(last, var, count, facts)
    if not steps or max(steps) >= count:
        return None
    length = 1 << max(steps).bit_length()
    width = min(length, widest(buffer, limit))
    while width > 1 and not (
        divides(width, start, facts)
        and divides(width, buffer.shape[-1], facts)
        and _rows_align(buffer, width, facts)
    ):
        width //= 2
    firsts = set(range(0, length, width))
    return (width, steps) if firsts <= set(steps) else None


def _steps(index: Expr, var: Var, count: int, facts: Facts) -> tuple[Expr, tuple[int, ...]]:
    """The least that an index is at ``count`` values of ``var`` from a multiple of that on, and how far it is
    from there at each of them; none where that depends on the multiple."""
    dtype = dtype_of(var)
    quotient = tirx.Var(f"{var.name}_vector", dtype)
    facts.analyzer.bind(quotient, tvm_ir.Range(tirx.const(0, dtype), tirx.const(_MOST, dtype)))
    start = quotient * tirx.const(count, dtype)
    places = [
        facts.analyzer.simplify(_moved_to(index, var, start, number, count, facts)) for number in range(count)
    ]
    steps = [int_value(facts.analyzer.simplify(place - places[0])) for place in places]
    known = [step for step in steps if step is not None]
    if len(known) < count:
        return places[0], ()
    least = min(known)
    return places[known.index(least)], tuple(step - least for step in known)


def _moved_to(index: Expr, var: Var, start: Expr, number: int, count: int, facts: Facts) -> Expr:
    """An index at the ``number`` behind ``start``, a multiple of ``count``, of which exclusive or with less
    than that leaves all but the lowest bits as they are."""

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, tirx.BitwiseXor) or not node.a.same_as(var) or count & (count - 1):
            return None
        mask = int_value(facts.analyzer.simplify(node.b))
        if mask is None or not 0 <= mask < count:
            return None
        return start + tirx.const(number ^ mask, dtype_of(var))

    return substitute(transform(index, visit), {var: start + tirx.const(number, dtype_of(var))})


def _rows_align(buffer: Var, width: int, facts: Facts) -> bool:
    """Whether every row starts at a multiple of ``width``."""
    strides = list(buffer.strides)
    if not strides:
        return True
    return int_value(strides[-1]) == 1 and all(divides(width, stride, facts) for stride in strides[:-1])


def divides(width: int, value: Expr | int, facts: Facts) -> bool:
    """Whether ``value`` is a multiple of ``width`` whatever the variables are."""
    known = int_value(value)
    if known is not None:
        return known % width == 0
    dtype = dtype_of(value)
    return facts.prove(tirx.EQ(tirx.floormod(value, tirx.const(width, dtype)), tirx.const(0, dtype))) is True
