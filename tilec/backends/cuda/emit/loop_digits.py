"""Loop variables as the digits that a thread and its registers make up.

    for i in threads(2048, layout="8:1@reg 32:1@lane 8:1@warp")    ->    i = register + 8 * lane + 256 * warp

Which register an element has is then what the register's digits of its indices come to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Var
from tvm.tirx.analysis import undefined_vars

from tilec.errors import CompileError
from tilec.ir.exprs import int32, int_value, linear_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tvm.ir import Expr

    from tilec.ir.layout_algebra import Term


@dataclass(frozen=True, eq=False)
class Part:
    """One digit of a loop variable: ``size`` values ``weight`` apart, the value at hand being ``value``."""

    weight: int
    size: int
    value: Expr
    in_register: bool


def parts_of(index: Expr, digits: Mapping[Var, tuple[Part, ...]]) -> tuple[tuple[Part, ...], int]:
    """The digits of a loop variable, or of an index that is a sum of multiples of some, each of which
    goes on where the others end, and what the index has beyond these ends; none for any other index."""
    if isinstance(index, Var):
        return digits.get(index, ()), 0
    per = int_value(index.b) if isinstance(index, tirx.FloorDiv) else None
    if per is not None and isinstance(index.a, Var):
        packed = (_packed(part, per) for part in digits.get(index.a, ()))
        return (Part(1, 1, int32(0), True), *(part for part in packed if part is not None)), 0
    used = [var for var in undefined_vars(index) if var in digits]
    linear = linear_in(index, used) if used else []
    numbers = [number for part in linear if (number := int_value(part)) is not None]
    if not numbers or len(numbers) < len(linear):
        return (), 0
    *factors, start = numbers
    turns = sorted(zip(factors, used, strict=True), key=lambda turn: turn[0])
    own = [[replace(part, weight=part.weight * by) for part in digits[var]] for by, var in turns]
    ends = [max((part.weight * part.size for part in parts), default=1) for parts in own]
    goes_on = all(end <= by for end, (by, _) in zip(ends, turns[1:], strict=False))
    offset = start % ends[-1]
    if not goes_on or start < 0 or offset >= turns[0][0]:
        return (), 0
    parts = (part for each in own for part in each)
    return (Part(1, turns[0][0], int32(offset), True), *parts), start - offset


def register_digit(term: Term, parts: Sequence[Part], window: int) -> Expr:
    """What ``parts`` of an index, and the ``window`` beyond them, contribute to a digit of registers."""
    total: Expr = int32(window // term.weight % term.size * term.stride)
    for part in parts:
        low = max(term.weight, part.weight)
        high = min(term.weight * term.size, part.weight * part.size)
        if low < high and part.in_register:
            total = total + _piece(part, low, high) * int32(low // term.weight * term.stride)
    return total


def _packed(part: Part, per: int) -> Part | None:
    """What is left of a digit where one counts for every ``per`` values; None where nothing is."""
    end = part.weight * part.size
    if end <= per:
        return None
    low = max(part.weight, per)
    return Part(low // per, end // low, _piece(part, low, end), part.in_register)


def _piece(part: Part, low: int, high: int) -> Expr:
    """The digits of ``part`` from weight ``low`` to ``high``."""
    if low % part.weight or high % low or (part.weight * part.size) % high:
        raise CompileError(
            "a fragment and a loop cut an index at places that do not fit",
            why=f"digits of weight {low} to {high} are asked of {part.size} of weight {part.weight}",
            remedy="choose tiles whose sides are powers of two in the config",
        )
    value = part.value
    if low > part.weight:
        value = tirx.truncdiv(value, int32(low // part.weight))
    if high < part.weight * part.size:
        value = tirx.truncmod(value, int32(high // low))
    return value
