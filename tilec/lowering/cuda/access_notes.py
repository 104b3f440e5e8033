"""What `explain` says of a loop's accesses: which are no vectors, and why."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import sym

from tilec.lowering.accesses import Access, accesses
from tilec.lowering.cuda.fragments import WARP
from tilec.lowering.cuda.vectors import WIDEST, vector_width
from tilec.lowering.exprs import int_value, loads, same_all, uses

if TYPE_CHECKING:
    from tilec.lowering.cuda.context import DeviceContext
    from tilec.lowering.cuda.nodes import ThreadLoop


@dataclass(frozen=True, eq=False)
class Moved:
    """An access that moves several elements at once."""

    access: Access

    def covers(self, item: Access) -> bool:
        """Whether ``item`` is one of its elements."""
        same_kind = self.access.buffer.same_as(item.buffer) and self.access.is_write == item.is_write
        return same_kind and same_all(self.access.indices, item.indices)


def note_accesses(stmt: ThreadLoop, moved: Collection[Moved], ctx: DeviceContext) -> None:
    """Notes on one loop; ``moved`` are its accesses by vectors."""
    for item in accesses(stmt.body):
        if not item.buffer.scope().startswith(("shared", "global")) or not item.indices:
            continue
        varies = any(uses(ctx.facts.inline(index), (stmt.vars[-1],)) for index in item.indices)
        if stmt.extents[-1] == 1 or not varies or any(each.covers(item) for each in moved):
            continue
        verb = "written" if item.is_write else "read"
        ctx.note(f"{item.buffer.name} is {verb} element by element: {_why_scalar(item, stmt, ctx)}")


def _why_scalar(item: Access, stmt: ThreadLoop, ctx: DeviceContext) -> str:
    """Why an access along the last variable is no vector."""
    var = stmt.vars[-1]
    *rows, index = (ctx.facts.inline(each) for each in item.indices)
    if any(uses(row, (var,)) for row in rows):
        return "neighbours are in different rows"
    linear = sym.detect_linear_equation(index, [var])
    if next(loads(index), None) is not None or not linear:
        return "where it is follows from values that are read"
    step = int_value(linear[0])
    if step != 1:
        return f"neighbours are {step if step is not None else 'an unknown number of'} elements apart"
    if _is_mixed(item, stmt):
        return "the loop reads and writes other elements of it"
    if math.prod(stmt.extents) < 2 * WARP * ctx.warps:
        return "the loop has no two elements for every thread"
    if vector_width(item.buffer, item.indices, var, WIDEST, ctx.facts) > 1:
        return "another access of the loop is no vector"
    return "extents and strides of its rows are not known to be multiples of a vector"


def _is_mixed(item: Access, stmt: ThreadLoop) -> bool:
    kinds = {other.is_write for other in accesses(stmt.body) if other.buffer.same_as(item.buffer)}
    return len(kinds) == 2
