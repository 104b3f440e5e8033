"""Private tables that hold what a tensor says are read from the tensor.

for v in serial(n): table[v] = tensor[block, v];  ... table[k] ...    ->    ... tensor[block, k] ...
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm.ir import TensorLoad

from tilec.ir.analysis.aliases import named
from tilec.ir.exprs import cast_to, dtype_of, int_value, loads, substitute, transform
from tilec.ir.nodes import Alloc, For, Gemm, Launch, Stmt, Store, is_global, walk
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.uses import touches, written_in
from tilec.lowering.passes.base import LaunchPass
from tilec.lowering.rewrite import map_block

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_NOTE = "{} is read from where its elements came from"


@dataclass(frozen=True, eq=False)
class _Table:
    """A loop that fills ``buffer`` with ``value`` at each ``var``."""

    loop: For
    buffer: Var
    var: Var
    value: Expr


class ReadTables(LaunchPass):
    """In: launches with products whose threads fill arrays of their own from tensors, an element a trip, in
    front of what looks something up there (which blocks of keys a mask lets through). Out: what is looked up
    is read of the tensors, where the launch writes neither again: whoever loads can look it up, too."""

    def launch(self, launch: Launch) -> Launch:
        """The launch without such arrays; one whose tensors may overlap as it is."""
        if named(launch) or not any(isinstance(stmt, Gemm) for stmt in walk(launch.body)):
            return launch
        tables = [table for stmt in launch.body if (table := _table(stmt, launch)) is not None]
        for table in tables:
            launch = _without(launch, table)
        return launch


def _table(stmt: Stmt, launch: Launch) -> _Table | None:
    """The table that a loop fills, all of it and alone, of tensors that stay as they are."""
    if not isinstance(stmt, For) or len(stmt.body) != 1:
        return None
    (store,) = stmt.body
    if not isinstance(store, Store):
        return None
    shape = [int_value(extent) for extent in store.buffer.shape]
    bounds = [int_value(bound) for bound in (stmt.start, stmt.stop, stmt.step)]
    own = len(store.indices) == 1 and store.indices[0].same_as(stmt.var)
    if store.buffer.scope() != "local" or not own or bounds != [0, shape[0], 1]:
        return None
    writers = [
        inner for inner in walk(launch.body) if store.buffer in written_in((inner,)) and inner is not stmt
    ]
    sources = {load.source for load in loads(store.value)}
    tensors = all(is_global(source) for source in sources)
    if writers != [store] or not sources or not tensors or sources & written_in(launch.body):
        return None
    return _Table(stmt, store.buffer, stmt.var, store.value)


def _without(launch: Launch, table: _Table) -> Launch:
    """``launch`` whose reads of a table are those of its tensors; itself where something else names it."""

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, TensorLoad) or not node.source.same_as(table.buffer):
            return None
        return substitute(table.value, {table.var: cast_to(node.indices[0], dtype_of(table.var))})

    rest = tuple(
        stmt for stmt in launch.body if stmt is not table.loop and not _allocates(stmt, table.buffer)
    )
    body = map_block(rest, lambda expr: transform(expr, visit))
    if any(touches(stmt, table.buffer) for stmt in body):
        return launch
    return with_notes(replace(launch, body=body), [_NOTE.format(table.buffer.name)])


def _allocates(stmt: Stmt, buffer: Var) -> bool:
    return isinstance(stmt, Alloc) and stmt.buffer.same_as(buffer)
