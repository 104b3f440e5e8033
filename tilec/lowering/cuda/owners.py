"""Accesses of shared and global memory that stay with one thread.

Two loops that give an element to the same thread need no barrier between them. Which thread that is follows
from the dimensions that the loop's variables index: `Owner` says per dimension how its index is spread over
threads. An index may be a variable plus a base that is a multiple of the variable's extent, since the element
then still tells the variable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tvm import sym, tirx
from tvm.ir import Var

from tilec.ir.layout_algebra import Term, thread_terms
from tilec.ir.nodes import Bind, Block, walk
from tilec.lowering.cpu.accesses import Access
from tilec.lowering.cuda.fragments import WARP
from tilec.lowering.exprs import int_value, loads, substitute, uses
from tilec.lowering.exprs import walk as walk_expr

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.lowering.cuda.nodes import ThreadLoop

#: Per dimension the threads along it and the extent that they cover; None for a dimension that says nothing.
Owner: TypeAlias = "tuple[tuple[tuple[Term, ...], int] | None, ...]"


def owner(item: Access, loop: ThreadLoop, warps: int, names: Mapping[Var, Expr]) -> Owner | None:
    """Who has the element that an access in ``loop`` names; None where that is not one thread by a rule that
    another loop could share. ``names``: the values of the names that indices use (`bound_names`)."""
    found: list[tuple[tuple[Term, ...], int] | None] = []
    for index in item.indices:
        axis = _axis(_spelled(index, names), loop.vars, loop.extents)
        found.append(None if axis is None else (thread_terms(loop.layout, axis), loop.extents[axis]))
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


def _spelled(index: Expr, names: Mapping[Var, Expr]) -> Expr:
    """``index`` without names that are bound."""
    while uses(index, tuple(names)):
        index = substitute(index, names)
    return index


def _axis(index: Expr, variables: Sequence[Var], extents: Sequence[int]) -> int | None:
    """The variable that an index is, up to a base that is a multiple of its extent, as a position."""
    while isinstance(index, tirx.Cast):
        index = index.value
    own = [axis for axis, var in enumerate(variables) if uses(index, (var,))]
    if len(own) != 1 or next(loads(index), None) is not None:
        return None
    linear = sym.detect_linear_equation(index, [variables[own[0]]])
    if not linear or int_value(linear[0]) != 1:
        return None
    return own[0] if _is_multiple(linear[1], extents[own[0]]) else None


def _is_multiple(base: Expr, extent: int) -> bool:
    """Whether ``base`` is a sum of multiples of ``extent``."""
    names = list({id(node): node for node in walk_expr(base) if isinstance(node, Var)}.values())
    parts = sym.detect_linear_equation(base, names) if names else [base]
    return bool(parts) and all(
        (value := int_value(part)) is not None and value % extent == 0 for part in parts
    )


def _covers(found: Sequence[tuple[tuple[Term, ...], int] | None], warps: int) -> bool:
    """Whether different threads have different values of the dimensions: no thread holds a copy."""
    total = {"lane": 1, "warp": 1}
    for terms, _ in (each for each in found if each is not None):
        for term in terms:
            total[term.space] = total.get(term.space, 1) * term.size
    return total == {"lane": WARP, "warp": warps}
