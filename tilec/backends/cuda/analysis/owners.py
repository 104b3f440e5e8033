"""Accesses of shared and global memory that stay with one thread.

Two loops that give an element to the same thread need no barrier between them. Which thread that is follows
from the dimensions that the loop's variables index: `Owner` says per dimension which variables its index
spells. A base is allowed that is a multiple of what they span, since the element then still tells them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from tvm import tirx
from tvm.ir import Var
from tvm.sym import Analyzer

from tilec.backends.cuda.analysis.fragments import WARP
from tilec.ir.exprs import int_value, linear_in, loads, substitute, uses
from tilec.ir.layout_algebra import Term, thread_terms
from tilec.ir.nodes import Bind, Block, walk
from tilec.lowering.analysis.accesses import Access

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.nodes import ThreadLoop

#: A loop variable: its extent and the threads along it.
Spread: TypeAlias = "tuple[int, tuple[Term, ...]]"
#: Per dimension the variables that index it, fastest first; none where it says nothing.
Owner: TypeAlias = "tuple[tuple[Spread, ...], ...]"


def owner(item: Access, loop: ThreadLoop, warps: int, names: Mapping[Var, Expr]) -> Owner | None:
    """Who has the element that an access in ``loop`` names; None where that is not one thread by a rule that
    another loop could share. ``names``: the values of the names that indices use (`bound_names`)."""
    found = []
    for index in item.indices:
        axes = _axes(spelled(index, names), loop.vars, loop.extents)
        found.append(tuple((loop.extents[axis], thread_terms(loop.layout, axis)) for axis in axes))
    return tuple(found) if _covers(found, warps) else None


def bound_names(block: Block) -> dict[Var, Expr]:
    """What the names that a block binds once stand for, where they are no reads of memory."""
    binds = [stmt for stmt in walk(block) if isinstance(stmt, Bind)]
    times = Counter(stmt.var for stmt in binds)
    return {
        stmt.var: stmt.value
        for stmt in binds
        if times[stmt.var] == 1 and next(loads(stmt.value), None) is None
    }


def spelled(index: Expr, names: Mapping[Var, Expr]) -> Expr:
    """``index`` without names that are bound."""
    while uses(index, tuple(names)):
        index = substitute(index, names)
    return index


def _axes(index: Expr, variables: Sequence[Var], extents: Sequence[int]) -> list[int]:
    """The variables that an index spells like digits (j, or i * 8 + j for a j below 8), as positions, fastest
    first, up to a base that is a multiple of what they span; none for any other index."""
    while isinstance(index, tirx.Cast):
        index = index.value
    own = [axis for axis, var in enumerate(variables) if uses(index, (var,))]
    if not own or next(loads(index), None) is not None:
        return []
    linear = linear_in(index, [variables[axis] for axis in own])
    if not linear:
        return []
    steps = [int_value(step) or 0 for step in linear[:-1]]
    span, found = 1, []
    for step, axis in sorted(zip(steps, own, strict=True)):
        if step != span:
            return []
        span *= extents[axis]
        found.append(axis)
    return found if _is_multiple(linear[-1], span) else []


def _is_multiple(base: Expr, extent: int) -> bool:
    """Whether ``base`` is known for a multiple of ``extent``."""
    found = _analyzer().modular_set(base)
    return bool(found.coeff % extent == 0 and found.base % extent == 0)


@cache
def _analyzer() -> Analyzer:
    return Analyzer()


def _covers(found: Sequence[tuple[Spread, ...]], warps: int) -> bool:
    """Whether different threads have different values of the dimensions: no thread holds a copy."""
    total = {"lane": 1, "warp": 1}
    for _, terms in (spread for dimension in found for spread in dimension):
        for term in terms:
            total[term.space] = total.get(term.space, 1) * term.size
    return total == {"lane": WARP, "warp": warps}
