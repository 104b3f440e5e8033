"""From which trip of a loop on a condition holds for every element, or up to which one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.ir.exprs import cast_to, dtype_of, inlined, int_value, linear_in, uses
from tilec.lowering.analysis.conditions import gap

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


@dataclass(frozen=True, eq=False)
class Cut:
    """A condition holds in the trips before ``at`` if ``first``, else from ``at`` on."""

    at: Expr
    first: bool


def conditions(cond: Expr) -> tuple[Expr, ...]:
    """The parts of a conjunction, one of flags as well."""
    if isinstance(cond, (tirx.And, tirx.BitwiseAnd)):
        return (*conditions(cond.a), *conditions(cond.b))
    return (cond,)


def cut_of(cond: Expr, var: Var, ranges: Mapping[Var, int], values: Mapping[Var, Expr]) -> Cut | None:
    """Where a condition on the trip ``var`` and on variables from 0 up to the ends of ``ranges`` stops or
    begins to hold for all of these; ``values`` are names in it."""
    return joined([room_cut(gap(part), var, ranges, values) for part in conditions(cond)])


def joined(cuts: Sequence[Cut | None]) -> Cut | None:
    """One cut for conditions that must all hold."""
    found = [cut for cut in cuts if cut is not None]
    if not found or len(found) < len(cuts) or len({cut.first for cut in found}) > 1:
        return None
    return Cut(_outmost(found), found[0].first)


def border(cuts: Sequence[Cut], start: Expr, stop: Expr) -> Expr:
    """Where the first of the conditions begins to fail, or the last one to hold; inside of the loop, hence in
    the type of its ends, whatever that of the conditions is."""
    outmost, dtype = _outmost(cuts), dtype_of(stop)
    wide = dtype_of(outmost)
    return cast_to(tirx.Max(tirx.Min(outmost, cast_to(stop, wide)), cast_to(start, wide)), dtype)


def _outmost(cuts: Sequence[Cut]) -> Expr:
    wide = "int64" if any(dtype_of(cut.at) == "int64" for cut in cuts) else "int32"
    at, *others = (cast_to(cut.at, wide) for cut in cuts)
    for other in others:
        at = tirx.Min(at, other) if cuts[0].first else tirx.Max(at, other)
    return at


def room_cut(
    room: Expr | None, var: Var, ranges: Mapping[Var, int], values: Mapping[Var, Expr]
) -> Cut | None:
    """Where ``room`` > 0 for all of ``ranges`` stops or begins to hold; None where it is not linear."""
    least = None if room is None else least_of(room, ranges, values)
    if least is None:
        return None
    linear = linear_in(least, [var])
    factor = int_value(linear[0]) if linear else None
    if factor is None or factor == 0 or uses(linear[1], (var,)):
        return None
    rest, step = linear[1], tirx.const(abs(factor), dtype_of(var))
    if factor < 0:
        return Cut(tirx.floordiv(sym.Analyzer().simplify(rest + step - 1), step), True)
    return Cut(tirx.floordiv(sym.Analyzer().simplify(0 - rest), step) + 1, False)


def least_of(value: Expr, ranges: Mapping[Var, int], values: Mapping[Var, Expr]) -> Expr | None:
    """The least of ``value`` over all of ``ranges``; None where it is not linear."""
    least = sym.Analyzer().simplify(inlined(value, values))
    for each, extent in ranges.items():
        linear = linear_in(least, [each])
        factor = int_value(linear[0]) if linear else None
        if factor is None:
            return None
        least = linear[1] + linear[0] * (extent - 1 if factor < 0 else 0)
    return least
