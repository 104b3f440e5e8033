"""Looking for set bits: T.__ffs and T.__fns, written with shifts and counts that every target has."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

from tilec.errors import SourceTypeError
from tilec.language.values.functions.integers import clz, popcount
from tilec.language.values.kernel.places import source_error
from tilec.language.values.operands import cast_value, wrap
from tilec.language.values.operators import apply, negative
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.value import Value

if TYPE_CHECKING:
    from tvm.ir import Expr


def _integer(value: Any, construct: str) -> Value:
    found = wrap(value)
    if found.dtype.row.is_integer:
        return found
    raise source_error(
        SourceTypeError, f"{construct} takes an integer, not {found.dtype}", remedy="use T.reinterpret first"
    )


def ffs(v: Any) -> Value:
    """The place of the lowest set bit, counted from 1; 0 if there is none."""
    value = _integer(v, "T.__ffs")
    signed = make_dtype(f"int{value.dtype.bits}")  # TVM takes the negative of an unsigned value for 0
    word = cast_value(value, signed)
    lowest: Value = apply("&", word, negative(word))
    result: Value = apply("-", value.dtype.bits, cast_value(clz(lowest), make_dtype("int32")))
    return result


def fns(mask: Any, base: Any, offset: Any) -> Value:
    """The place of the ``offset``-th set bit of a 32-bit mask from bit ``base`` on, ``base`` included;
    downward for a negative offset, and ``base`` itself, if it is set, for 0. All ones if there is none."""
    from tvm import tirx

    unsigned, signed = make_dtype("uint32"), make_dtype("int32")
    words = [cast_value(_integer(mask, "T.__fns"), unsigned)]
    words += [cast_value(_integer(value, "T.__fns"), signed) for value in (base, offset)]
    given, start, count = (tirx.Var(name, str(word.dtype)) for name, word in zip("mbn", words, strict=True))
    bits, number = tirx.Var("bits", "uint32"), tirx.Var("number", "int32")
    zero, one, ones = tirx.const(0, "int32"), tirx.const(1, "int32"), tirx.const(0xFFFFFFFF, "uint32")
    first = tirx.Cast("uint32", start)
    above, below = given & (ones << first), given & (ones >> (tirx.const(31, "uint32") - first))
    here = given & (tirx.const(1, "uint32") << first)
    upward, downward = count > zero, count < zero
    # From below, the n-th set bit from above is number population - n + 1.
    bindings = [
        *zip((given, start, count), (word.expr for word in words), strict=True),
        (bits, tirx.Select(upward, above, tirx.Select(downward, below, here))),
        (number, tirx.Select(upward, count, tirx.Select(downward, _count(bits) + count + one, one))),
    ]
    found: Expr = tirx.Select(tirx.And(number >= one, number <= _count(bits)), _nth(bits, number), ones)
    for var, value in reversed(bindings):
        found = tirx.Let(var, value, found)
    return Value(found)


def _count(bits: Expr) -> Expr:
    from tvm import tirx

    return tirx.Cast("int32", popcount(Value(bits)).expr)


def _nth(bits: Expr, number: Expr) -> Expr:
    """The place of set bit ``number`` (from 1): how many lower parts of the mask hold fewer."""
    from tvm import tirx

    parts = (bits & tirx.const((2 << place) - 1, "uint32") for place in range(31))
    fewer = (tirx.Cast("uint32", _count(part) < number) for part in parts)
    return reduce(operator.add, fewer)


#: Every function of this module that the T namespace offers, by name.
FUNCTIONS: dict[str, Callable[..., Any]] = {"__ffs": ffs, "__fns": fns}
