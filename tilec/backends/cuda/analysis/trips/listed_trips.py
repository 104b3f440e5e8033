"""The trips of serial loops around a statement, where compiling tells all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from tilec.errors import EvalError
from tilec.ir.exprs import inlined, loads, variables_of
from tilec.ir.interp.expressions import value_of

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import For

#: More trips are not looked at.
_MOST = 2**10


def trips(
    variables: Sequence[Var], loops: Sequence[For], names: Mapping[Var, Expr]
) -> list[dict[Var, np.int64]] | None:
    """The values that ``variables`` have at the same time, in each trip of ``loops``, outermost first; None
    where they are not all those of loops, where these run as often as a call says, and for more than 2**10
    trips. ``names``: what stands for names in bounds (`bound_names`)."""
    bounds = {
        loop.var: [inlined(bound, names) for bound in (loop.start, loop.stop, loop.step)] for loop in loops
    }
    if not all(var in bounds for var in variables):
        return None
    found: list[dict[Var, np.int64]] = [{}]
    for var in _needed(variables, bounds):
        runs = [(values, _run(bounds[var], values)) for values in found]
        if any(run is None for _, run in runs):
            return None
        each = ({**values, var: np.int64(value)} for values, run in runs for value in run or ())
        found = list(islice(each, _MOST + 1))
        if len(found) > _MOST:
            return None
    return found


def _needed(variables: Sequence[Var], bounds: Mapping[Var, Sequence[Expr]]) -> list[Var]:
    """The variables and those that their bounds follow from, outermost first."""
    needed = set(variables)
    for var in reversed(bounds):
        if var in needed:
            needed |= set(variables_of(bounds[var]))
    return [var for var in bounds if var in needed]


def _run(bounds: Sequence[Expr], values: Mapping[Var, np.int64]) -> range | None:
    """The values of a loop's variable in a trip of those around; None where the bounds follow from more."""
    reads = any(next(loads(bound), None) is not None for bound in bounds)
    if reads or not set(variables_of(bounds)) <= values.keys():
        return None
    try:
        start, stop, step = (int(value_of(bound, values)) for bound in bounds)
    except EvalError:
        return None
    return range(start, stop, step) if step else None
