"""A loop that stores to a tensor as two: one writes a shared tile, the other one brings it out by rows.

Lanes that hold a product's sums have neighbours of two columns; from shared memory a warp stores whole lines.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.loops import loop_extents, written_out
from tilec.ir.exprs import cast_to, dtype_of, loads, substitute
from tilec.ir.hints import Hints
from tilec.ir.nodes import Alloc, If, Parallel, Stmt, Store

if TYPE_CHECKING:
    from tvm.ir import Expr


def stored(loop: Parallel) -> tuple[Expr | None, Store | None]:
    """The store that a loop ends with, and the condition around it if it depends on no fragment."""
    last = loop.body[-1] if loop.body else None
    if isinstance(last, Store):
        return None, last
    if not isinstance(last, If) or last.orelse or len(last.then) != 1 or not isinstance(last.then[0], Store):
        return None, None
    (test,) = written_out((last.cond,), loop)
    if any(load.source.scope() == "local.fragment" for load in loads(test)):
        return None, None
    return last.cond, last.then[0]


def in_two(
    loop: Parallel, store: Store, cond: Expr | None, alloc: Alloc, along: tuple[int, int] | None = None
) -> list[Stmt]:
    """A loop whose ``store`` under ``cond`` writes the tile of ``alloc``, which has its extents, and one that
    copies that out; ``along``: which of its variables is the last one of each of both."""
    tile = alloc.buffer
    kept = replace(store, buffer=tile, indices=loop.vars, value=cast_to(store.value, str(tile.dtype)))
    fresh = tuple(tirx.Var(str(var.name), dtype_of(var)) for var in loop.vars)
    moved = dict(zip(loop.vars, fresh, strict=True))
    indices = tuple(substitute(index, moved) for index in written_out(store.indices, loop))
    out: Stmt = Store(store.buffer, indices, tirx.BufferLoad(tile, list(fresh)), loc=store.loc)
    if cond is not None:
        (test,) = written_out((cond,), loop)
        out = If(substitute(test, moved), (out,), loc=store.loc)
    writes = replace(loop, body=(*loop.body[:-1], kept), hints=Hints())
    reads = Parallel(fresh, loop_extents(loop), (out,), loop.hints, loc=loop.loc)
    first, second = (len(fresh) - 1,) * 2 if along is None else along
    return [alloc, run_along(writes, first), run_along(reads, second)]


def run_along(loop: Parallel, place: int) -> Parallel:
    """A loop with another variable as its last one."""
    order = [*(other for other in range(len(loop.vars)) if other != place), place]
    own, sizes = (tuple(each[at] for at in order) for each in (loop.vars, loop.extents))
    return replace(loop, vars=own, extents=sizes)
