"""Conditions that the remainder of a trip's number decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.ir.exprs import inlined, int_value, loads, substitute, variables_of
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.counted import counted

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.ir.nodes import For, Pipelined

#: Trips of a loop at most, as numbers of them are bounded for proofs.
_MOST_TRIPS = 1 << 28


def sides(cond: Expr, loop: For | Pipelined, period: int) -> tuple[bool | None, ...]:
    """Whether a condition holds in each of ``period`` trips of ``loop`` that follow each other, in all groups
    of so many; None where that is not known, as where it asks for more than the number of the trip."""
    cond = inlined(cond, values_of(loop.body))
    if set(variables_of([cond])) - {loop.var} or any(True for _ in loads(cond)):
        return (None,) * period
    analyzer = counted((loop.var,), (_MOST_TRIPS,))
    places = (loop.start + loop.var * period + number for number in range(period))
    decided = (int_value(analyzer.simplify(substitute(cond, {loop.var: place}))) for place in places)
    return tuple(None if value is None else bool(value) for value in decided)
