"""What to say of operands that an operator does not take, and of expressions where a number is needed."""

from __future__ import annotations

import re
from typing import Any

from tilec.errors import SourceError, SourceRuntimeError, SourceTypeError, SourceValueError
from tilec.ir.num_sms import NUM_SMS
from tilec.language.values.kernel.namespace import offers
from tilec.language.values.kernel.places import source_error

_NAME = re.compile(r"\b(?!min\b|max\b)[A-Za-z_]\w*")
_OF_INTEGERS = (
    SourceTypeError,
    "it works on the bits of integers, in front of any comparison beside it",
    "T.reinterpret the float, or cast it; of comparisons write (a < b) & (c < d)",
)
#: What to write where Python needs the truth, an integer or a number of an expression.
FOR_TRUTH = "use `if` inside the kernel or a @T.macro, T.if_then_else, T.max or T.min"
FOR_AN_INDEX = (
    "lists and ranges of Python are there while the kernel is built: index a tensor or a tile (T.alloc_local "
    "holds a few values), choose with T.if_then_else, or write a `for` statement over the list or the range"
)
FOR_A_WHOLE = "give integers: n // 32, or T.ceildiv(n, 32), which covers the rest; n / 32 is a float"
FOR_A_NUMBER = "cast it with T.cast(x, dtype); T.exp and friends stand for math"
#: What is wrong with the operands of an operator: class, why, remedy.
_MISTAKES = {
    "/": (SourceRuntimeError, "integer division is ambiguous", "use // or T.truncdiv, or cast to a float"),
    "//": (SourceTypeError, "it is of integers", "use T.floor(a / b) for floats"),
    "%": (SourceTypeError, "it is of integers", "use T.fmod for floats"),
    **dict.fromkeys(("<<", ">>", "&", "|", "^"), _OF_INTEGERS),
}


def operand_error(symbol: str, types: str, right: Any, error: Exception) -> SourceError:
    """What TVM says of operands that ``symbol`` does not take. ``types``: the dtypes of both."""
    kind, why, remedy = _MISTAKES.get(symbol, (SourceTypeError, "", "cast one side with T.cast"))
    if isinstance(error, ValueError):
        kind, why, remedy = SourceValueError, "", "cast the operand, or use a constant that fits"
    if symbol in ("/", "//", "%") and _is_zero(right):
        kind, why, remedy = SourceValueError, "it divides by zero", "give a divisor other than 0"
    if "cannot make uint" in str(error):
        kind, why = SourceValueError, "an unsigned integer is never negative"
        remedy = "give a number from 0 on, or cast the other side to a signed type"
    if "BigInt" in str(error):
        kind, why, remedy = SourceValueError, "integers have 64 bits at most", "write a float, or less"
    why = why or str(error).strip().splitlines()[0]
    return source_error(kind, f"operator {symbol} does not take {types}", why=why, remedy=remedy)


def _is_zero(value: Any) -> bool:
    """Whether an operand is the number 0, as it is or of a type."""
    from tilec.ir.exprs import int_value

    number = value if isinstance(value, (int, float)) else int_value(getattr(value, "expr", None))
    return number == 0


def lacking(what: str, name: str, instead: dict[str, str]) -> AttributeError:
    """``what`` has no attribute ``name``, with what stands for it."""
    known = instead.get(name)
    if known is None and not name.startswith("_") and offers(name):
        known = f"T.{name} of elements"
    return AttributeError(f"{what} has no {name}{f': use {known}' if known else ''}")


def several(what: str, construct: str | None = None) -> SourceError:
    """Several indices stand where one does; ``what`` says where."""
    return source_error(
        SourceTypeError,
        what,
        construct=construct,
        why="a launch or a loop of several axes gives an index for each of them",
        remedy="name each, as in `as (bx, by)` and `for i, j in`, or take one of them: bx[0]",
    )


def no_number(kind: type[SourceError], text: str | None, shown: str, what: str, remedy: str) -> SourceError:
    """Python needs the number of an expression, ``text`` over dimensions and ``shown`` as it stands."""
    if text is not None:
        found = dict.fromkeys(_NAME.findall(text))
        if NUM_SMS in found:
            return source_error(
                kind,
                "driver.get_num_sms() has no number while a library is built",
                why=f"it is known when the kernel is launched, and {what}: {text}",
                remedy="use T.max, T.min or T.if_then_else, or take the number of blocks from a config key",
            )
        names = ", ".join(found)
        return source_error(
            kind,
            f"dimension {names} is dynamic here",
            why=f"{what}: {text}",
            remedy="give it integers in dims, or use T.ceildiv / T.if_then_else",
        )
    return source_error(kind, what, why=f"the expression is {shown}", remedy=remedy)
