"""Accumulations across the iterations of a loop become reductions.

    for i, j in parallel(4, 64): s[i] = s[i] + a[i, j] * a[i, j]
    ->
    for i, j in parallel(4, 64): terms[i, j] = a[i, j] * a[i, j]
    reduce_sum(terms, part, axis=1)
    for i in parallel(4): s[i] = s[i] + part[i]

Iterations of one ``i`` are different threads here, which cannot add to one element one by one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.loops import long_variables, loop_extents, one_to_one, written_out
from tilec.backends.cuda.analysis.layouts.tiles import static_extents, whole_tile
from tilec.ir.exprs import cast_to, dtype_of, substitute, uses
from tilec.ir.nodes import (
    Alloc,
    Atomic,
    Block,
    Copy,
    Fill,
    Kernel,
    Parallel,
    Reduce,
    Stmt,
    Store,
    children,
    walk,
    with_children,
)
from tilec.ir.nodes.threads import PER_THREAD
from tilec.lowering.analysis.accumulations import (
    BITWISE,
    Accumulation,
    accumulation,
    identity,
    touches,
)
from tilec.lowering.emission.storage import compute_type
from tilec.lowering.passes.base import Pass, replaced, rewrite_launches
from tilec.lowering.passes.expand_copies import expand_copy, expand_fill

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

#: What several threads hold a copy or a part of; shared and global memory is the author's to protect.
_HELD = ("local.fragment", *PER_THREAD)


class ReduceAccumulations(Pass):
    """In: Parallel loops of constant extents. Out: the same without ``x = x (+, max, min) term`` on an
    element that several iterations share: each iteration adds to an element of its own, and a Reduce behind
    the loop takes them together."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its accumulations as reductions."""
        return rewrite_launches(kernel, lambda launch: replace(launch, body=_block(launch.body)))


def _block(block: Block) -> Block:
    return tuple(new for stmt in block for new in _stmt(stmt))


def _stmt(stmt: Stmt) -> list[Stmt]:
    if not isinstance(stmt, Parallel):
        return [with_children(stmt, [_block(inner) for inner in children(stmt)])]
    before: list[Stmt] = []
    after: list[Stmt] = []
    for buffer in dict.fromkeys(item.buffer for item in shared_elements(stmt)):
        items = _accumulations(stmt, buffer)
        if len(items) == 1 and _is_plain(stmt, items[0].store):
            stmt = _own_elements(stmt, items[0], before, after)
        elif items and not items[0].nan_propagate:
            stmt = _through_shared(stmt, items, before, after)
    return [*before, stmt, *after]


def _accumulations(loop: Parallel, buffer: Var) -> list[Accumulation]:
    """All stores of a loop to ``buffer``, where they are accumulations of one kind and nothing else in the
    loop names it; else none."""
    stores = [stmt for stmt in walk(loop.body) if isinstance(stmt, Store) and stmt.buffer.same_as(buffer)]
    found = [item for item in map(accumulation, stores) if item is not None and item.kind not in BITWISE]
    alone = touches(loop.body, buffer) == 2 * len(stores)
    same_kind = len({(item.kind, item.nan_propagate) for item in found}) == 1
    return found if alone and same_kind and len(found) == len(stores) else []


def _is_plain(loop: Parallel, store: Store) -> bool:
    """Whether different values of the variables that an element depends on name different elements."""
    return one_to_one(written_out(store.indices, loop), tuple(_moving(loop, store)), loop)


def _through_shared(
    loop: Parallel, items: list[Accumulation], before: list[Stmt], after: list[Stmt]
) -> Parallel:
    """The loop with accumulations into any elements as atomic updates of a copy in shared memory."""
    buffer = items[0].store.buffer
    shape = static_extents(buffer)
    name, dtype = f"{buffer.name}_sums", str(buffer.dtype)
    tile = tirx.decl_buffer(shape, dtype, name=name, scope="shared.dyn")
    there = Copy(whole_tile(buffer), whole_tile(tile), loc=loop.loc)
    back = Copy(whole_tile(tile), whole_tile(buffer), loc=loop.loc)
    before += [Alloc(tile), expand_copy(there)]
    after.append(expand_copy(back))
    body = loop.body
    for item in items:
        kind = "add" if item.kind == "sum" else item.kind
        store = item.store
        update = Atomic(kind, tile, store.indices, cast_to(item.term, dtype), loc=store.loc)
        body = replaced(body, {store: (update,)})
    return replace(loop, body=body)


def shared_elements(loop: Parallel) -> list[Store]:
    """The stores of a loop to elements that several of its iterations write, in what threads hold."""
    inside = {stmt.buffer for stmt in walk(loop.body) if isinstance(stmt, Alloc)}
    return [
        stmt
        for stmt in walk(loop.body)
        if isinstance(stmt, Store)
        and stmt.buffer.scope() in _HELD
        and stmt.buffer not in inside
        and not one_to_one(written_out(stmt.indices, loop), long_variables(loop), loop)
    ]


def _moving(loop: Parallel, store: Store) -> set[Var]:
    """The variables of a loop that the element of a store depends on."""
    indices = written_out(store.indices, loop)
    return {var for var in loop.vars if any(uses(index, (var,)) for index in indices)}


def _own_elements(loop: Parallel, item: Accumulation, before: list[Stmt], after: list[Stmt]) -> Parallel:
    """The loop with one accumulation going to a fragment of the loop's shape, which starts from nothing where
    an iteration adds to its element once."""
    extents, name = loop_extents(loop), f"{item.store.buffer.name}_terms"
    kind = compute_type(item.dtype)
    terms = tirx.decl_buffer(extents, kind, name=name, scope="local.fragment")
    before.append(Alloc(terms))
    value = cast_to(item.term, kind)
    if item.store not in loop.body:
        before.append(expand_fill(Fill(whole_tile(terms), identity(item.kind, kind), loc=loop.loc)))
        value = item.combined(tirx.BufferLoad(terms, list(loop.vars)), value)
    added = Store(terms, loop.vars, value, loc=item.store.loc)
    after += _reduced(loop, item, terms, extents)
    return replace(loop, body=replaced(loop.body, {item.store: (added,)}))


def _reduced(loop: Parallel, item: Accumulation, terms: Var, extents: tuple[int, ...]) -> list[Stmt]:
    """Reductions over the variables that the element does not depend on, and the update of the element."""
    moving = _moving(loop, item.store)
    kept = [axis for axis, var in enumerate(loop.vars) if var in moving]
    parts: list[Stmt] = []
    shape = extents
    for axis in reversed([axis for axis in range(len(extents)) if axis not in kept]):
        left = (*shape[:axis], *shape[axis + 1 :]) or (1,)
        result = tirx.decl_buffer(left, str(terms.dtype), name=str(terms.name), scope="local.fragment")
        reduce = Reduce(
            item.kind, whole_tile(terms), whole_tile(result), axis, True, item.nan_propagate, loc=loop.loc
        )
        parts += [Alloc(result), reduce]
        terms, shape = result, left
    variables = tuple(tirx.Var(f"{loop.vars[axis].name}_sum", dtype_of(loop.vars[axis])) for axis in kept)
    renamed = dict(zip((loop.vars[axis] for axis in kept), variables, strict=True))
    indices = tuple(substitute(index, renamed) for index in written_out(item.store.indices, loop))
    sizes = tuple(extents[axis] for axis in kept)
    return [*parts, _update(item, indices, terms, variables, sizes)]


def _update(
    item: Accumulation,
    indices: tuple[Expr, ...],
    terms: Var,
    variables: tuple[Var, ...],
    extents: tuple[int, ...],
) -> Stmt:
    """The elements with the sums of their terms taken in."""
    buffer, kind = item.store.buffer, str(terms.dtype)
    total = tirx.BufferLoad(terms, list(variables) or [tirx.const(0, "int32")])
    old = cast_to(tirx.BufferLoad(buffer, list(indices)), kind)
    store = Store(buffer, indices, cast_to(item.combined(old, total), item.dtype), loc=item.store.loc)
    return Parallel(variables, extents, (store,), loc=item.store.loc) if variables else store
