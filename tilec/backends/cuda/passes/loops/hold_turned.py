"""What loops compute of sums and store transposed to a shared tile is held in registers first.

    for j, i: t[j, i] = acc[i, j] * s[j]
 -> for i, j: h[i, j] = acc[i, j] * s[j]
    for j, i: t[j, i] = h[i, j]

The second loop is nothing but stores of a fragment, which stmatrix turns on their way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.layouts.held_alike import held_alike, sums_in
from tilec.backends.cuda.analysis.layouts.loops import loop_extents
from tilec.backends.cuda.analysis.layouts.two_loops import run_along
from tilec.backends.cuda.limits import has_tma
from tilec.ir.exprs import cast_to, dtype_of, int_value, same_all
from tilec.ir.hints import Hints
from tilec.ir.nodes import Alloc, Bind, Kernel, Launch, Parallel, Stmt, Store, walk
from tilec.ir.traits import loads_of
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from collections.abc import Set

    from tvm.ir import Var

    from tilec.targets import Target


class HoldTurned(Pass):
    """In: Parallel loops of two variables that compute elements of 16 bits of sums of products and store
    them to a shared tile at the transposed place. Out: on targets with stmatrix such a loop as two."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with such loops in two."""
        return rewrite_launches(kernel, _held) if has_tma(target) else kernel


def _held(launch: Launch) -> Launch:
    sums = sums_in(walk(launch.body))
    if not sums:
        return launch
    sums = held_alike(walk(launch.body), sums)
    body = rewrite_blocks(launch.body, lambda block: [new for stmt in block for new in _in_two(stmt, sums)])
    return replace(launch, body=body)


def _in_two(stmt: Stmt, sums: Set[Var]) -> list[Stmt]:
    """A loop as one over a fragment and one that stores it; other statements as they are."""
    if not isinstance(stmt, Parallel) or len(stmt.vars) != 2 or not stmt.body:
        return [stmt]
    *names, store = stmt.body
    row = _row(stmt, store) if isinstance(store, Store) else None
    if row is None or not all(isinstance(each, Bind) for each in names) or not _computes(stmt, row, sums):
        return [stmt]
    assert isinstance(store, Store)
    dtype, own = str(store.buffer.dtype), run_along(stmt, 1 - row)
    fragment = tirx.decl_buffer(
        loop_extents(own), dtype, name=f"{store.buffer.name}_held", scope="local.fragment"
    )
    kept = Store(fragment, own.vars, cast_to(store.value, dtype), loc=store.loc)
    makes = replace(own, body=(*names, kept), hints=Hints())
    column, line = (tirx.Var(str(var.name), dtype_of(var)) for var in own.vars)
    moved = replace(store, indices=(line, column), value=tirx.BufferLoad(fragment, [column, line]))
    moves = replace(own, vars=(line, column), extents=own.extents[::-1], body=(moved,))
    return [Alloc(fragment, loc=stmt.loc), makes, moves]


def _row(loop: Parallel, store: Store) -> int | None:
    """Which of a loop's variables is the last index of a store whose first one is the other; None where its
    place is another one, or no element of 16 bits of a shared tile."""
    if store.buffer.scope() != "shared.dyn" or element_bytes(str(store.buffer.dtype)) != 2:
        return None
    if len(store.indices) != 2 or any(int_value(extent) is None for extent in loop.extents):
        return None
    orders = (loop.vars[::-1], loop.vars)
    return next((place for place, order in enumerate(orders) if same_all(store.indices, order)), None)


def _computes(loop: Parallel, row: int, sums: Set[Var]) -> bool:
    """Whether what a loop stores is more than an element of a fragment, and the elements of ``sums`` that it
    reads are those of the transposed place alone."""
    found = list(loads_of(*loop.body))
    held = [load for load in found if load.source in sums]
    across = all(same_all(load.indices, (loop.vars[row], loop.vars[1 - row])) for load in held)
    store = loop.body[-1]
    assert isinstance(store, Store)
    value = store.value.value if isinstance(store.value, tirx.Cast) else store.value
    return not isinstance(value, TensorLoad) and bool(held) and across
