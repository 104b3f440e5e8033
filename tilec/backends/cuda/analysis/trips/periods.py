"""Conditions that the remainder of a trip's number decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import ir as tvm_ir
from tvm import sym, tirx

from tilec.ir.exprs import dtype_of, inlined, int_value, loads, substitute, variables_of
from tilec.lowering.analysis.accesses import values_of

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import For, Pipelined

#: Trips of a loop at most, as numbers of them are bounded for proofs.
_MOST_TRIPS = 1 << 28


def sides(cond: Expr, loop: For | Pipelined, places: Sequence[Expr], var: Var) -> tuple[bool | None, ...]:
    """Whether a condition holds in the trips of ``loop`` at ``places``, whatever ``var`` in them is, from 0
    on; None where that is not known, as where it asks for more than the number of the trip."""
    cond = inlined(cond, values_of(loop.body))
    if set(variables_of([cond])) - {loop.var} or any(True for _ in loads(cond)):
        return (None,) * len(places)
    analyzer = sym.Analyzer()
    analyzer.bind(var, tvm_ir.Range(*(tirx.const(end, dtype_of(var)) for end in (0, _MOST_TRIPS))))
    decided = (int_value(analyzer.simplify(substitute(cond, {loop.var: place}))) for place in places)
    return tuple(None if value is None else bool(value) for value in decided)
