"""Loops that read along one variable and store along another one turn their elements in shared memory.

    for i, j: B[j, i] = A[i, j]
 -> for i, j: t[i, j] = A[i, j]
    for j, i: B[j, i] = t[i, j]

Neighbours in memory go to neighbouring lanes on both sides then.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.loops import loop_extents, written_out
from tilec.backends.cuda.analysis.layouts.two_loops import in_two, stored
from tilec.backends.cuda.passes.waits.place_shared import pool_plan
from tilec.backends.cuda.warp_roles.epilogue import moves_by_one
from tilec.ir.exprs import int_value, loads, uses
from tilec.ir.nodes import Alloc, Kernel, Launch, Parallel, Stmt, Store, is_global
from tilec.lowering.analysis.accesses import accesses
from tilec.lowering.analysis.uses import order_counts
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, Var

    from tilec.targets import Target

#: Elements along each side from which on what is stored alone is more than what is moved beside it.
_SIDE = 8
#: Bytes of a tile that leave a multiprocessor several blocks.
_ROOM = 1 << 15


class TurnStores(Pass):
    """In: Parallel loops over elements of tensors that store to another tensor along one variable and read
    along another one. Out: loops along the latter that write a shared tile, and loops along the former that
    bring it out, as far as a block has room."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its stores turned."""
        assert target.gpu is not None
        room = target.gpu.shared_bytes
        return rewrite_launches(kernel, lambda launch: _turned(launch, room))


def _turned(launch: Launch, room: int) -> Launch:
    if launch.thread_vars or order_counts(launch):
        return launch
    made = replace(launch, body=rewrite_blocks(launch.body, _block))
    return made if pool_plan(made).total <= room else launch


def _block(block: Sequence[Stmt]) -> list[Stmt]:
    return [new for stmt in block for new in _in_turn(stmt)]


def _in_turn(stmt: Stmt) -> list[Stmt]:
    """A loop as two where that puts neighbours beside each other; any other statement as it is."""
    if not isinstance(stmt, Parallel) or any(int_value(extent) is None for extent in stmt.extents):
        return [stmt]
    cond, store = stored(stmt)
    along = None if store is None else _sides(stmt, store)
    if store is None or along is None:
        return [stmt]
    extents, dtype = loop_extents(stmt), str(store.buffer.dtype)
    if math.prod(extents) * element_bytes(dtype) > _ROOM or min(extents[place] for place in along) < _SIDE:
        return [stmt]
    tile = tirx.decl_buffer(extents, dtype, name=f"{store.buffer.name}_turned", scope="shared.dyn")
    return in_two(stmt, store, cond, Alloc(tile, loc=stmt.loc), along)


def _sides(loop: Parallel, store: Store) -> tuple[int, int] | None:
    """The variable that a loop reads along, and another one that it stores along; None where it does not."""
    if store.buffer.scope() != "global" or not _is_plain(loop, store):
        return None
    to, *sources = [
        written_out(indices, loop)
        for indices in (store.indices, *(item.indices for item in accesses(loop.body) if not item.is_write))
    ]
    stored_along, read_along = (
        _line(to, loop),
        {_line(each, loop) for each in sources if _moves(each, to, loop)},
    )
    if stored_along is None or len(read_along) != 1:
        return None
    (place,) = read_along
    return None if place in (None, stored_along) else (place, stored_along)


def _moves(source: Sequence[Expr], to: Sequence[Expr], loop: Parallel) -> bool:
    """Whether an element that is read moves with the variable that a loop stores along, and with others."""
    place = _line(to, loop)
    return (
        place is not None
        and _uses(source, loop.vars[place])
        and sum(_uses(source, var) for var in loop.vars) > 1
    )


def _line(indices: Sequence[Expr], loop: Parallel) -> int | None:
    """The only variable that the last index goes along by one, and no other index."""
    *rows, last = indices
    moving = [place for place, var in enumerate(loop.vars) if uses(last, (var,))]
    if len(moving) != 1 or not moves_by_one(last, loop.vars[moving[0]]):
        return None
    return None if _uses(rows, loop.vars[moving[0]]) else moving[0]


def _is_plain(loop: Parallel, store: Store) -> bool:
    """Whether a loop is over elements of tensors, one store its only effect, whose place no table tells."""
    items = accesses(loop.body)
    read = {item.buffer for item in items if not item.is_write}
    alone = [item for item in items if item.is_write]
    looked_up = any(next(loads(index), None) is not None for index in written_out(store.indices, loop))
    plain = all(is_global(buffer) for buffer in read)
    return len(alone) == 1 and plain and store.buffer not in read and not looked_up


def _uses(indices: Sequence[Expr], var: Var) -> bool:
    return any(uses(index, (var,)) for index in indices)
