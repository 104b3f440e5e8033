"""Loops whose trips may run in any order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from tvm import sym

from tilec.ir.exprs import inlined, int_value, linear_in, uses
from tilec.ir.nodes import Alloc, For, walk
from tilec.ir.traits import defined
from tilec.lowering.analysis.accesses import Access, accesses
from tilec.lowering.analysis.accumulations import find_accumulations
from tilec.lowering.math.float8 import FLOAT8_TYPES

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def are_free(loop: For, names: Mapping[Var, Expr]) -> bool:
    """Whether trips write elements of their own, which no other one reads, but for those that all add to: not
    of 8-bit floats, whose sums come to something else where they are not rounded after each trip. ``names``:
    what names stand for."""
    own = {stmt.buffer for stmt in walk(loop.body) if isinstance(stmt, Alloc)}
    sums = find_accumulations(loop.body, loop.var)
    added = {item.store.buffer for item in sums if item.kind != "sum" or item.dtype not in FLOAT8_TYPES}
    items = accesses(loop.body)
    written = {item.buffer for item in items if item.is_write} - own - added
    inside = {var for stmt in walk(loop.body) for var in defined(stmt)} - set(names)
    return all(
        _are_apart([item for item in items if item.buffer == buffer], loop.var, inside, names)
        for buffer in written
    )


def _are_apart(
    items: Sequence[Access], var: Var, inside: AbstractSet[Var], names: Mapping[Var, Expr]
) -> bool:
    """Whether the accesses of one buffer share an index that differs from trip to trip by more than they
    differ from each other."""
    first, *others = [[inlined(index, names) for index in item.indices] for item in items]
    for axis, index in enumerate(first):
        linear = linear_in(index, [var])
        step = int_value(linear[0]) if linear else None
        if not step or uses(index, inside):
            continue
        gaps = [int_value(_simplified(other[axis] - index)) for other in others]
        known = [gap for gap in gaps if gap is not None]
        if len(known) == len(gaps) and max((0, *known)) - min((0, *known)) < abs(step):
            return True
    return False


def _simplified(expr: Expr) -> Expr:
    return sym.Analyzer().simplify(expr)
