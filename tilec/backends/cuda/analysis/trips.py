"""The trips of serial loops around a statement, where compiling tells all of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from tvm.ir import Var

from tilec.errors import EvalError
from tilec.ir.exprs import inlined, loads, walk
from tilec.ir.interp.expressions import Compiler, State
from tilec.ir.nodes import Bind, For

if TYPE_CHECKING:
    from tvm.ir import Expr

#: What binds names around a statement, outermost first.
Around: TypeAlias = "Sequence[Bind | For]"
#: More trips are not looked at.
_MOST = 2**10


def without_names(expr: Expr, around: Around) -> Expr:
    """``expr`` without the names that are bound around it, but for those of what is read from memory."""
    binds = [stmt for stmt in around if isinstance(stmt, Bind)]
    return inlined(expr, {stmt.var: stmt.value for stmt in binds if next(loads(stmt.value), None) is None})


def names_in(exprs: Sequence[Expr]) -> list[Var]:
    """The variables of expressions, each once."""
    return list(dict.fromkeys(node for expr in exprs for node in walk(expr) if isinstance(node, Var)))


def trips(names: Sequence[Var], around: Around) -> list[dict[Var, int]] | None:
    """The values that ``names`` have at the same time, in each trip; None where they are no variables of
    loops around, where these run as often as a call says, and for more than 2**10 trips."""
    loops = {stmt.var: stmt for stmt in around if isinstance(stmt, For)}
    if not all(name in loops for name in names):
        return None
    found: list[dict[Var, int]] = [{}]
    for loop in _needed(names, loops, around):
        bounds = [without_names(bound, around) for bound in (loop.start, loop.stop, loop.step)]
        runs = [(values, _run(bounds, values)) for values in found]
        if any(run is None for _, run in runs):
            return None
        each = ({**values, loop.var: value} for values, run in runs for value in run or ())
        found = list(islice(each, _MOST + 1))
        if len(found) > _MOST:
            return None
    return found


def _needed(names: Sequence[Var], loops: dict[Var, For], around: Around) -> list[For]:
    """The loops of ``names`` and those that their bounds follow from, outermost first."""
    needed = set(names)
    for var, loop in reversed(loops.items()):
        if var in needed:
            bounds = (without_names(bound, around) for bound in (loop.start, loop.stop, loop.step))
            needed |= set(names_in(list(bounds))) & set(loops)
    return [loop for var, loop in loops.items() if var in needed]


def _run(bounds: Sequence[Expr], values: dict[Var, int]) -> range | None:
    """The values of a loop's variable in a trip of those around; None where the bounds follow from more."""
    if not all(name in values for name in names_in(bounds)) or any(
        next(loads(each), None) for each in bounds
    ):
        return None
    compiler, state = Compiler(), State()
    for var, value in values.items():
        state.scalars[compiler.number(var)] = np.asarray(value, np.int64)
    try:
        start, stop, step = (int(compiler(bound)(state)) for bound in bounds)
    except EvalError:
        return None
    return range(start, stop, step) if step else None
