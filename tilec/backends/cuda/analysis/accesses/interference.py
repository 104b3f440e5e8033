"""Whether iterations of a loop touch what others of them write, by looking at all of them in each trip of the
loops around: butterflies and sorting networks, whose places no linear index tells."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilec.backends.cuda.analysis.layouts.loops import loop_extents
from tilec.backends.cuda.analysis.trips.listed_trips import trips
from tilec.errors import EvalError
from tilec.ir.exprs import conjuncts, inlined, loads, variables_of
from tilec.ir.interp.expressions import value_of
from tilec.ir.nodes import If, children
from tilec.lowering.analysis.accesses import accesses

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Block, For, Parallel

#: More accesses, of all iterations in all trips, are not looked at.
_MOST = 2**22


@dataclass(frozen=True)
class _Touch:
    """An access, in no more iterations than those where all ``conds`` hold."""

    indices: tuple[Expr, ...]
    conds: tuple[Expr, ...]
    is_write: bool


def are_apart(loop: Parallel, buffer: Var, around: Sequence[For], names: Mapping[Var, Expr]) -> bool:
    """Whether no iteration of ``loop`` touches an element of ``buffer`` that another one writes. False where
    places are read from memory, or follow from what a call says. ``around``: the serial loops that it stands
    in, outermost first; ``names``: what stands for names (`bound_names`)."""
    known = {*loop.vars, *(each.var for each in around)}
    touches = list(_touches(loop.body, buffer, names, known, ()))
    if any(next(loads(index), None) is not None for each in touches for index in each.indices):
        return False
    used = variables_of(expr for each in touches for expr in (*each.indices, *each.conds))
    found = trips([var for var in used if var not in loop.vars], around, names)
    size = math.prod(loop_extents(loop)) * len(touches)
    if found is None or len(found) * size > _MOST:
        return False
    return all(_are_apart(touches, loop, values) for values in found)


def _touches(
    block: Block, buffer: Var, names: Mapping[Var, Expr], known: set[Var], conds: tuple[Expr, ...]
) -> Iterator[_Touch]:
    """All accesses of ``buffer``, under conditions that follow from variables that are ``known``."""
    for stmt in block:
        inner = children(stmt)
        for item in accesses((stmt,)) if not inner else ():
            if item.buffer.same_as(buffer):
                indices = tuple(inlined(index, names) for index in item.indices)
                yield _Touch(indices, conds, item.is_write)
        for number, part in enumerate(inner):
            held = conds
            if isinstance(stmt, If) and number == 0:
                tests = (inlined(cond, names) for cond in conjuncts(stmt.cond))
                held = (*conds, *(test for test in tests if _is_told(test, known)))
            yield from _touches(part, buffer, names, known, held)


def _is_told(cond: Expr, known: set[Var]) -> bool:
    return next(loads(cond), None) is None and set(variables_of([cond])) <= known


def _are_apart(touches: Sequence[_Touch], loop: Parallel, values: Mapping[Var, np.int64]) -> bool:
    """The same in one trip."""
    extents = loop_extents(loop)
    grid = np.indices(tuple(extents)).reshape(len(extents), -1)
    known = {**values, **dict(zip(loop.vars, grid, strict=True))}
    count = grid.shape[1]

    def evaluated(expr: Expr) -> np.ndarray:
        return np.broadcast_to(np.asarray(value_of(expr, known)), (count,))

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
