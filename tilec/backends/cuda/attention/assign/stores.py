"""Results that leave through staging memory and TMA: 16-bit elements of whole fragments, at their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.products.wgmma import ROWS
from tilec.backends.cuda.attention.nodes import BoxStore
from tilec.backends.cuda.warp_roles.epilogue import moves_by_one
from tilec.backends.cuda.warp_roles.nodes import TensorMap
from tilec.backends.cuda.warp_roles.tma import box_map
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.exprs import int_value, substitute, uses
from tilec.ir.nodes import Alloc, Block, Copy, Parallel, Region, Stmt, Store
from tilec.lowering.passes.expand_copies import expand_copy

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.lowering.analysis.facts import Facts

_TYPES = ("float16", "bfloat16")
#: Columns of a box, and of a matrix that stmatrix moves.
_BOX, _MATRIX = ROW_BYTES // 2, 8


def staged_stores(block: Block, rows: int, facts: Facts) -> tuple[Block, tuple[Var, ...]]:
    """``block`` with every such loop over ``rows``, those of all fragments, as a loop into a fragment and a
    BoxStore, and the staging tiles."""
    body: list[Stmt] = []
    staging: list[Var] = []
    for stmt in block:
        loop = expand_copy(stmt) if isinstance(stmt, Copy) else stmt
        parts = _staged(loop, rows, facts) if isinstance(loop, Parallel) else None
        if parts is None:
            body.append(stmt)
            continue
        body += parts
        staging += [part.staging for part in parts if isinstance(part, BoxStore)]
    return tuple(body), tuple(staging)


def _staged(loop: Parallel, rows: int, facts: Facts) -> tuple[Stmt, ...] | None:
    if loop.hints.avoids_tma or len(loop.vars) != 2 or int_value(loop.extents[0]) != rows:
        return None
    if len(loop.body) != 1 or not isinstance(loop.body[0], Store):
        return None
    store = loop.body[0]
    buffer, extents = store.buffer, tuple(int_value(extent) or 0 for extent in loop.extents)
    if buffer.scope() != "global" or str(buffer.dtype) not in _TYPES:
        return None
    zero = tirx.const(0, "int32")
    start = tuple(substitute(index, dict.fromkeys(loop.vars, zero)) for index in store.indices)
    axis = _row_axis(store, loop)
    if axis is None or not _takes_whole_boxes(buffer, start[-1], extents[1]):
        return None
    found = _map(buffer, axis, _BOX, facts)
    if found is None:
        return None
    shape = (extents[0], extents[1])
    held = tirx.decl_buffer(shape, str(buffer.dtype), name=f"{buffer.name}_held", scope="local.fragment")
    whole = (extents[0], -(-extents[1] // _BOX) * _BOX)
    staging = tirx.decl_buffer(whole, str(buffer.dtype), name=f"{buffer.name}_staging", scope="shared.dyn")
    own = Store(held, tuple(loop.vars), store.value, loc=store.loc)
    return (
        Alloc(held, loc=loop.loc),
        Parallel(loop.vars, loop.extents, (own,), loc=loop.loc),
        BoxStore(Region(held, (zero, zero), shape), found, start, staging, loop.hints.eviction, loc=loop.loc),
    )


def _takes_whole_boxes(buffer: Var, start: Expr, columns: int) -> bool:
    """Whether boxes from ``start`` on hold these columns and nothing else of a tensor: heads of 72 channels
    where rows end with them, as what lies outside of a tensor is not stored."""
    if columns % _BOX == 0:
        return True
    first, end = int_value(start), int_value(buffer.shape[-1])
    ends = first is not None and end is not None and first + columns >= end
    return ends and columns % _MATRIX == 0


def _map(buffer: Var, axis: int, columns: int, facts: Facts) -> TensorMap | None:
    box = [1] * len(buffer.shape)
    box[axis], box[-1] = ROWS, columns
    try:
        return box_map(buffer, tuple(box), ROW_BYTES, facts)
    except Unfit:
        return None


def _row_axis(store: Store, loop: Parallel) -> int | None:
    """The axis that rows move by one, where columns move the last one and nothing else moves."""
    row, column = loop.vars
    *lead, last = store.indices
    moved = [axis for axis, index in enumerate(lead) if uses(index, loop.vars)]
    if len(moved) != 1 or uses(last, (row,)) or not moves_by_one(last, column):
        return None
    index = lead[moved[0]]
    return moved[0] if not uses(index, (column,)) and moves_by_one(index, row) else None
