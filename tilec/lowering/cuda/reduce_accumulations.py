"""Accumulations across the iterations of a loop become reductions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    Fill,
    Kernel,
    Parallel,
    Reduce,
    Region,
    Stmt,
    Store,
    children,
    walk,
)
from tilec.lowering.cpu.accumulations import Accumulation, accumulation, identity, touches
from tilec.lowering.cpu.expand_copies import cast_to, expand_fill
from tilec.lowering.cpu.storage import compute_type
from tilec.lowering.cuda.loops import loop_extents
from tilec.lowering.exprs import dtype_of, loads, substitute, uses
from tilec.lowering.passes import rewrite_launches, with_children

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

#: What several threads hold a copy or a part of; shared and global memory is the author's to protect.
_HELD = ("local.fragment", "local", "local.var")


@dataclass(frozen=True)
class ReduceAccumulations:
    """In: Parallel loops of constant extents. Out: the same without ``x = x (+, max, min) term`` on an
    element that several iterations share: each iteration adds to an element of its own, and a Reduce behind
    the loop takes them together."""

    name: str = "reduce_accumulations"

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
    for item in shared_elements(stmt):
        found = accumulation(item)
        fixed = not any(True for index in element(stmt, item) for _ in loads(index))
        if found is not None and fixed and touches(stmt.body, item.buffer) == 2:
            stmt = _own_elements(stmt, found, before, after)
    return [*before, stmt, *after]


def shared_elements(loop: Parallel) -> list[Store]:
    """The stores of a loop to elements that several of its iterations write, in what threads hold."""
    inside = {stmt.buffer for stmt in walk(loop.body) if isinstance(stmt, Alloc)}
    long = [var for var, extent in zip(loop.vars, loop_extents(loop), strict=True) if extent > 1]
    return [
        stmt
        for stmt in walk(loop.body)
        if isinstance(stmt, Store)
        and stmt.buffer.scope() in _HELD
        and stmt.buffer not in inside
        and not set(long) <= _moving(loop, stmt)
    ]


def element(loop: Parallel, store: Store) -> tuple[Expr, ...]:
    """The indices of a store over the variables of its loop, what the body binds being written out."""
    values = {stmt.var: stmt.value for stmt in walk(loop.body) if isinstance(stmt, Bind)}
    indices = store.indices
    for _ in values:
        indices = tuple(substitute(index, values) for index in indices)
    return indices


def _moving(loop: Parallel, store: Store) -> set[Var]:
    """The variables of a loop that the element of a store depends on."""
    indices = element(loop, store)
    return {var for var in loop.vars if any(uses(index, (var,)) for index in indices)}


def _own_elements(loop: Parallel, item: Accumulation, before: list[Stmt], after: list[Stmt]) -> Parallel:
    """The loop with one accumulation going to a fragment of the loop's shape."""
    extents, name = loop_extents(loop), f"{item.store.buffer.name}_terms"
    kind = compute_type(item.dtype)
    terms = tirx.decl_buffer(extents, kind, name=name, scope="local.fragment")
    clear = Fill(_whole(terms, extents), identity(item.kind, kind), loc=loop.loc)
    before += [Alloc(terms), expand_fill(clear)]
    own = tirx.BufferLoad(terms, list(loop.vars))
    added = Store(terms, loop.vars, item.combined(own, cast_to(item.term, kind)), loc=item.store.loc)
    after += _reduced(loop, item, terms, extents)
    return replace(loop, body=_replaced(loop.body, item.store, added))


def _reduced(loop: Parallel, item: Accumulation, terms: Var, extents: tuple[int, ...]) -> list[Stmt]:
    """Reductions over the variables that the element does not depend on, and the update of the element."""
    moving = _moving(loop, item.store)
    kept = [axis for axis, var in enumerate(loop.vars) if var in moving]
    parts: list[Stmt] = []
    shape = extents
    for axis in reversed([axis for axis in range(len(extents)) if axis not in kept]):
        left = (*shape[:axis], *shape[axis + 1 :]) or (1,)
        result = tirx.decl_buffer(left, str(terms.dtype), name=str(terms.name), scope="local.fragment")
        reduce = Reduce(item.kind, _whole(terms, shape), _whole(result, left), axis, True, loc=loop.loc)
        parts += [Alloc(result), reduce]
        terms, shape = result, left
    variables = tuple(tirx.Var(f"{loop.vars[axis].name}_sum", dtype_of(loop.vars[axis])) for axis in kept)
    renamed = dict(zip((loop.vars[axis] for axis in kept), variables, strict=True))
    indices = tuple(substitute(index, renamed) for index in element(loop, item.store))
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


def _replaced(block: Block, old: Store, new: Store) -> Block:
    return tuple(
        new if stmt is old else with_children(stmt, [_replaced(inner, old, new) for inner in children(stmt)])
        for stmt in block
    )


def _whole(tile: Var, extents: tuple[int, ...]) -> Region:
    return Region(tile, (tirx.const(0, "int32"),) * len(extents), extents)
