"""Tiles that a block of statements writes anew before it reads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.tiles import is_whole, static_extents
from tilec.ir.exprs import int_value, loads
from tilec.ir.nodes import Copy, Fill, Gemm, Parallel, Reduce, Stmt, Store, walk
from tilec.ir.traits import expressions
from tilec.lowering.analysis.uses import touches

if TYPE_CHECKING:
    from tvm.ir import Var


def begins_anew(tile: Var, block: Iterable[Stmt]) -> bool:
    """Whether the first statement that meets a tile writes all of it, and reads none."""
    user = next((stmt for stmt in block if touches(stmt, tile)), None)
    if isinstance(user, Parallel):
        return _fills(user, tile)
    if isinstance(user, Gemm):
        return user.c.buffer.same_as(tile) and is_whole(user.c) and int_value(user.clear) == 1
    if isinstance(user, Fill):
        return is_whole(user.dst)
    if isinstance(user, Reduce) and not user.clear:
        return False
    if isinstance(user, (Copy, Reduce)):
        return user.dst.buffer.same_as(tile) and is_whole(user.dst) and not user.src.buffer.same_as(tile)
    return False


def _fills(loop: Parallel, tile: Var) -> bool:
    """Whether a loop writes each element of a tile once, and reads none."""
    inside = list(walk(loop.body))
    stores = [stmt for stmt in inside if isinstance(stmt, Store) and stmt.buffer.same_as(tile)]
    read = (load.source for stmt in inside for expr in expressions(stmt) for load in loads(expr))
    if len(stores) != 1 or stores[0] not in loop.body or any(map(tile.same_as, read)):
        return False
    extents = dict(zip(loop.vars, map(int_value, loop.extents), strict=True))
    sizes = [next((extents[var] for var in loop.vars if at.same_as(var)), None) for at in stores[0].indices]
    return tuple(sizes) == static_extents(tile)
