"""Whether iterations of a loop touch what others of them write, by looking at all of them in each trip of the
loops around: butterflies and sorting networks, whose places no linear index tells."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilec.backends.cuda.analysis.loops import loop_extents
from tilec.backends.cuda.analysis.trips import Around, names_in, trips, without_names
from tilec.errors import EvalError
from tilec.ir.exprs import conjuncts, loads
from tilec.ir.interp.expressions import Compiler, State
from tilec.ir.nodes import Bind, Block, For, If, Parallel, children
from tilec.lowering.analysis.accesses import accesses

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: More accesses, of all iterations in all trips, are not looked at.
_MOST = 2**22


@dataclass(frozen=True)
class _Touch:
    """An access, in no more iterations than those where all ``conds`` hold."""

    indices: tuple[Expr, ...]
    conds: tuple[Expr, ...]
    is_write: bool


def are_apart(loop: Parallel, buffer: Var, around: Around) -> bool:
    """Whether no iteration of ``loop`` touches an element of ``buffer`` that another one writes. False where
    places are read from memory, or follow from what a call says. ``around``: what binds names outside."""
    touches = list(_touches(loop.body, buffer, around, ()))
    places = [index for each in touches for index in each.indices]
    if any(next(loads(place), None) is not None for place in places):
        return False
    outer = [stmt.var for stmt in around if isinstance(stmt, For)]
    known = {*loop.vars, *outer}
    touches = [_Touch(each.indices, _told(each.conds, known), each.is_write) for each in touches]
    used = [expr for each in touches for expr in (*each.indices, *each.conds)]
    found = trips([name for name in names_in(used) if name not in loop.vars], around)
    size = math.prod(loop_extents(loop)) * len(touches)
    if found is None or len(found) * size > _MOST:
        return False
    return all(_are_apart(touches, loop, values) for values in found)


def _touches(block: Block, buffer: Var, around: Around, conds: Sequence[Expr]) -> Iterator[_Touch]:
    """All accesses of ``buffer``, without the names that are bound around them."""
    for stmt in block:
        inner = children(stmt)
        own = accesses((stmt,)) if not inner else ()
        for item in own:
            if item.buffer.same_as(buffer):
                indices = tuple(without_names(index, around) for index in item.indices)
                yield _Touch(indices, tuple(conds), item.is_write)
        if isinstance(stmt, Bind):
            around = (*around, stmt)
        inside = (*around, stmt) if isinstance(stmt, For) else around
        for number, part in enumerate(inner):
            held = conds
            if isinstance(stmt, If) and number == 0:
                held = [*conds, *(without_names(cond, around) for cond in conjuncts(stmt.cond))]
            yield from _touches(part, buffer, inside, held)


def _told(conds: Sequence[Expr], known: set[Var]) -> tuple[Expr, ...]:
    """The conditions that follow from names that are known."""
    return tuple(cond for cond in conds if next(loads(cond), None) is None and set(names_in([cond])) <= known)


def _are_apart(touches: Sequence[_Touch], loop: Parallel, values: Mapping[Var, int]) -> bool:
    """The same in one trip."""
    compiler, state, extents = Compiler(), State(), loop_extents(loop)
    for var, value in values.items():
        state.scalars[compiler.number(var)] = np.asarray(value, np.int64)
    grid = np.indices(tuple(extents)).reshape(len(extents), -1)
    for var, axis in zip(loop.vars, grid, strict=True):
        state.scalars[compiler.number(var)] = axis
    count = grid.shape[1]

    def evaluated(expr: Expr) -> np.ndarray:
        return np.broadcast_to(np.asarray(compiler(expr)(state)), (count,))

    where, who, written = [], [], []
    try:
        for each in touches:
            holds = np.all([np.ones(count, bool), *map(evaluated, each.conds)], axis=0)
            where.append(np.stack([evaluated(index) for index in each.indices])[:, holds])
            who.append(np.flatnonzero(holds))
            written.append(np.full(len(who[-1]), each.is_write))
    except EvalError:  # a divisor is 0 for some of them
        return False
    _, element = np.unique(np.concatenate(where, axis=1), axis=1, return_inverse=True)
    iteration, element = np.concatenate(who), element.reshape(-1)
    first = np.full(len(element), count)
    last = np.full(len(element), -1)
    np.minimum.at(first, element, iteration)
    np.maximum.at(last, element, iteration)
    shared = first < last
    return not np.any(shared[element] & np.concatenate(written))
