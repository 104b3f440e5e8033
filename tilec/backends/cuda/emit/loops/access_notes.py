"""The road of a loop over memory: vectors, or single elements, and why."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.vectors import HELD_BY_TWO, WIDEST, begins_anywhere, vector_width
from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.nodes import EndThreadLoop, ThreadLoop, ThreadVector
from tilec.ir.exprs import dtype_of, int_value, linear_in, loads, uses
from tilec.ir.nodes import Atomic, Bind, Block, Launch, Stmt, Store, children
from tilec.ir.roads import Loss, Road
from tilec.lowering.analysis.accesses import (
    Access,
    accesses,
    own_accesses,
    updated_in_place,
    updates_atomically,
)
from tilec.lowering.analysis.roads import road_of
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tilec.backends.cuda.emit.context import DeviceContext

_MEMORY = ("shared", "global")
#: Elements of the longest vector.
_MOST = WIDEST
_EACH = "each thread its own element"


@dataclass(frozen=True, eq=False)
class Moved:
    """An access that moves ``width`` elements at once."""

    access: Access
    width: int


def take_road(stmt: ThreadLoop, moved: Collection[Moved], ctx: DeviceContext) -> None:
    """Says which road one loop takes; ``moved`` are its accesses by vectors."""
    if isinstance(stmt, EndThreadLoop):
        ctx.take(stmt, "elements", "single elements where a tensor ends")
        return
    slow = list(_element_by_element(stmt, moved, ctx))
    for item, (why, remedy) in slow:
        verb = "written" if item.is_write else "read"
        loss = Loss("vectors", why, remedy) if remedy else None
        how = f"{item.buffer.name} is {verb} element by element" + ("" if remedy else f": {why}")
        ctx.take(stmt, "elements", how, loss)
    sizes = [each.width * element_bytes(str(each.access.buffer.dtype)) for each in moved]
    if sizes:
        low, high = min(sizes), max(sizes)
        ctx.take(
            stmt,
            "vectors",
            f"vectors of {high} bytes" if low == high else f"vectors of {low} to {high} bytes",
        )
    elif not slow:
        outside = any(item.buffer.scope().startswith(_MEMORY) for item in _one_by_one(stmt.body))
        how = "single elements, at places that do not move along the loop" if outside else "registers"
        ctx.take(stmt, "elements" if outside else "registers", how)


def thread_roads(launch: Launch) -> list[Road]:
    """The roads of statements that each thread carries out for itself, in a launch with thread-level code."""
    if not launch.thread_vars:
        return []
    return [road_of(stmt, "threads", _EACH) for stmt in _alone(launch.body)]


def _alone(block: Block) -> Iterator[Stmt]:
    """The statements outside of loops over threads that touch memory which others see."""
    for stmt in block:
        if isinstance(stmt, (ThreadLoop, ThreadVector)):
            continue
        touched = accesses((stmt,)) if isinstance(stmt, (Store, Atomic, Bind)) else ()
        if any(item.buffer.scope().startswith(_MEMORY) for item in touched):
            yield stmt
        for inner in children(stmt):
            yield from _alone(inner)


def _element_by_element(
    stmt: ThreadLoop, moved: Collection[Moved], ctx: DeviceContext
) -> Iterator[tuple[Access, tuple[str, str]]]:
    """The accesses along the last variable that are no vectors, with the reason and what to change."""
    for item in _one_by_one(stmt.body):
        if not item.buffer.scope().startswith(_MEMORY) or not item.indices:
            continue
        varies = any(uses(ctx.facts.inline(index), (stmt.vars[-1],)) for index in item.indices)
        if stmt.extents[-1] == 1 or not varies or any(each.access.matches(item) for each in moved):
            continue
        yield item, _why_scalar(item, stmt, ctx)


def _one_by_one(body: Block) -> Iterator[Access]:
    """What a body names outside of vectors of its own, which say their road themselves."""
    for stmt in body:
        if not isinstance(stmt, ThreadVector):
            yield from own_accesses(stmt)
            for inner in children(stmt):
                yield from _one_by_one(inner)


def _why_scalar(item: Access, stmt: ThreadLoop, ctx: DeviceContext) -> tuple[str, str]:
    """Why an access along the last variable is no vector, and what to change: nothing, where it follows from
    another access or from how few elements there are."""
    var = stmt.vars[-1]
    *rows, index = (ctx.facts.inline(each) for each in item.indices)
    if any(uses(row, (var,)) for row in rows):
        return "neighbours are in different rows", "let the last variable of the loop move the last index"
    linear = linear_in(index, [var])
    if next(loads(index), None) is not None:
        return "where it is follows from values that are read", "look up whole rows, not elements of them"
    if not linear:
        return "its place is no linear function of the loop's last variable", ""
    step = int_value(linear[0])
    if step != 1:
        apart = f"neighbours are {step if step is not None else 'an unknown number of'} elements apart"
        return apart, "store it so that the last variable of the loop moves its last axis by one"
    if math.prod(stmt.extents) < 2 * WARP * ctx.warps:
        return "the loop has no two elements for every thread", ""
    if vector_width(item.buffer, item.indices, var, WIDEST, ctx.facts) == 1:
        if begins_anywhere(item.buffer, item.indices, var, HELD_BY_TWO, ctx.facts) == HELD_BY_TWO:
            why = f"it begins between two vectors, and a thread has fewer than {HELD_BY_TWO} neighbours"
            return why, f"bring it to a shared tile by a loop over a multiple of {HELD_BY_TWO} elements"
        why = "extents and strides of its rows are not known to be multiples of a vector"
        guard = f">={_MOST}" if _may_be_short(item, ctx) else "%8"
        return why, f'pin the extent of its rows, or give the dimension a guard such as "{guard}"'
    if _is_mixed(item, stmt):
        return "the loop reads and writes other elements of it", "write to another tile"
    return "another access of the loop is no vector", ""


def _may_be_short(item: Access, ctx: DeviceContext) -> bool:
    """Whether a tensor is one row, of which only that it may have no whole vector keeps loops from them."""
    extents = item.buffer.shape
    if len(extents) > 1 or item.buffer.scope() != "global":
        return False
    return ctx.facts.prove(tirx.GE(extents[0], tirx.const(_MOST, dtype_of(extents[0])))) is not True


def _is_mixed(item: Access, stmt: ThreadLoop) -> bool:
    if updates_atomically(stmt.body, item.buffer):
        return False
    kinds = {other.is_write for other in accesses(stmt.body) if other.buffer.same_as(item.buffer)}
    return len(kinds) == 2 and item.buffer not in updated_in_place(stmt.body, stmt.vars[-1], stmt.extents[-1])
