"""Places of elements modulo a power of two: whether a vector may start there, and if not, how far off it is.

``A[row * n + i]`` with n a dim: vectors of 4 start at multiples where n is one; else `low_place` is
``row * n & 3``, by which code cuts rows into vectors and single elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.vectors import WIDEST, divides, widest
from tilec.ir.exprs import cast_to, dtype_of, int_value, linear_in, substitute, summands, uses
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.nodes import ThreadLoop
    from tilec.ir.nodes import Parallel
    from tilec.lowering.analysis.facts import Facts


def low_place(place: Expr, width: int, loop: Parallel | ThreadLoop, facts: Facts) -> Expr:
    """A number from 0 to ``width`` - 1 that a place in a loop is beyond a multiple of it, 0 where it is known
    to be none."""
    single = {
        var: tirx.const(0, dtype_of(var))
        for var, extent in zip(loop.vars, loop.extents, strict=True)
        if int_value(extent) == 1
    }
    place = facts.simplify(substitute(place, single))
    left = [low_bits(term, width) for term in summands(place) if not divides(width, term, facts)]
    if not left:
        return tirx.const(0, "int32")
    total = left[0]
    for term in left[1:]:
        total = total + term
    return total if len(left) == 1 else tirx.bitwise_and(total, tirx.const(width - 1, "int32"))


def place_width(buffer: Var, indices: Sequence[Expr], var: Var, limit: int, facts: Facts) -> int:
    """How many elements one access along ``var`` may move by where they lie, given that ``var`` starts at a
    multiple of them: rows may begin and end between them. A power of two up to ``limit``, 1 for none."""
    *rows, last = (facts.inline(index) for index in indices)
    linear = linear_in(last, [var])
    told = linear and int_value(linear[0]) == 1 and not any(uses(index, (var,)) for index in rows)
    if not linear or not told or not is_dense(buffer):
        return 1
    place, width = facts.simplify(element_place(buffer, (*rows, linear[1]))), widest(buffer, limit)
    while width > 1 and not divides(width, place, facts):
        width //= 2
    return width


def is_dense(buffer: Var) -> bool:
    """Whether neighbours of a row lie side by side, in whole bytes that a vector holds several of."""
    strides = list(buffer.strides)
    return element_bytes(str(buffer.dtype)) < WIDEST and (not strides or int_value(strides[-1]) == 1)


def uniform_factors(place: Expr, width: int, facts: Facts) -> list[Expr]:
    """Sizes of which a place is a multiple of ``width`` where they are; none where other things count."""
    found: list[Expr] = []
    for term in summands(facts.simplify(place)):
        if divides(width, term, facts):
            continue
        factor = next((part for part in _factors(term) if facts.is_dim(part)), None)
        if factor is None:
            return []
        found.append(factor)
    return found


def _factors(term: Expr) -> list[Expr]:
    if isinstance(term, tirx.Cast):
        return _factors(term.value)
    return [*_factors(term.a), *_factors(term.b)] if isinstance(term, tirx.Mul) else [term]


def low_bits(value: Expr, width: int) -> Expr:
    """``value`` modulo ``width``, a power of two, in 32 bits that nothing overflows."""
    mask = tirx.const(width - 1, "int32")
    number = int_value(value)
    if number is not None:
        return tirx.const(number % width, "int32")
    if isinstance(value, tirx.Cast) and dtype_of(value) in ("int32", "int64"):
        return low_bits(value.value, width)
    if isinstance(value, (tirx.Add, tirx.Sub, tirx.Mul)):
        sides = (low_bits(side, width) for side in (value.a, value.b))
        return tirx.bitwise_and(type(value)(*sides), mask)
    return tirx.bitwise_and(cast_to(value, "int32"), mask)


def element_place(buffer: Var, indices: Sequence[Expr]) -> Expr:
    """The number of an element in memory."""
    strides: list[Expr] = list(buffer.strides)
    if not strides:
        strides = [tirx.const(1, "int64")]
        for extent in reversed(list(buffer.shape)[1:]):
            strides.insert(0, tirx.Cast("int64", extent) * strides[0])
    total: Expr = tirx.const(0, "int64")
    for index, stride in zip(indices, strides, strict=True):
        total = total + tirx.Cast("int64", index) * tirx.Cast("int64", stride)
    return total
