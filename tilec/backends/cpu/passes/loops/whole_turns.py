"""How often a remainder goes round in most iterations of a loop: ``(x + 511) % 512`` is ``x - 1`` behind the
first of 512."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm.ir import Var

from tilec.ir.exprs import int_value, linear_in, variables_of

if TYPE_CHECKING:
    from tvm.ir import Expr


def taken_off(
    index: Expr, divisor: Expr, lane: tuple[Var, int], trips: Sequence[tuple[Var, range]], few: int
) -> Expr | None:
    """What ``index % divisor`` takes off the index in the middle of ``lane`` (an axis and its extent) and of
    the ``trips`` of loops in it, where all else is 0; None where numbers do not tell, a row of ``divisor``
    elements has fewer than ``few`` iterations for which it is that, or ``lane`` goes round more than once."""
    var, extent = lane
    size = [divisor] if isinstance(divisor, Var) else []
    factors = linear_in(index, [var, *(each for each, _ in trips), *size])
    steps = [number for number in map(int_value, factors[: 1 + len(trips)]) if number is not None]
    if len(steps) < 1 + len(trips) or not steps[0]:
        return None
    if size:
        turns = int_value(factors[-2])
        return None if turns is None else divisor * turns
    number, first = int_value(divisor), _number_in(factors[-1])
    inner = list(zip(steps[1:], (known for _, known in trips), strict=True))
    spread = sum(abs(step) * abs(known[-1] - known[0]) for step, known in inner)
    if number is None or first is None or (number - spread) // abs(steps[0]) < few:
        return None
    if abs(steps[0]) * extent > number:
        return None
    middle = steps[0] * (extent // 2) + sum(step * known[len(known) // 2] for step, known in inner)
    return divisor * ((first + middle) // number)


def _number_in(rest: Expr) -> int | None:
    """What is left of a value without variables; None where it is not linear in them."""
    parts = linear_in(rest, variables_of([rest]))
    return int_value(parts[-1]) if parts else None
