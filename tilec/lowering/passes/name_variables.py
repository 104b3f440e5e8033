"""Flags and indices that threads keep in memory of their own become names.

live = alloc((1,), "local"); live[0] = M[k]; if live[0]: ...    ->    live = M[k]; if live: ...
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.ir.analysis.renaming import renamed
from tilec.ir.exprs import cast_to, int_value, transform
from tilec.ir.foreign import is_foreign
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    Copy,
    Fill,
    For,
    If,
    Launch,
    Parallel,
    Pipelined,
    Stmt,
    Store,
    While,
    every_block,
    walk,
)
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.traits import Rewriter, buffers, is_single, loads_of
from tilec.lowering.analysis.uses import addressed_in
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tvm.ir import Expr


#: Statements that read values; others may take an element for the memory that it is.
_VALUES = (Bind, Copy, Fill, For, If, Parallel, Pipelined, Store, While)
_VARIABLE = "local.var"


class NameVariables(LaunchPass):
    """In: memory of threads. Out: none of one integer or bool that is stored once, in front of all reads in
    its block: the value has a name, which tells a pass what a condition or a place depends on. Arrays of one
    that is stored more often are variables, however the author asked for them."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such memory named."""
        found = _named(launch.body)
        named = _Names(found).body(launch.body) if found else launch.body
        arrays = [buffer for buffer in plain_memory(named) if buffer.scope() != _VARIABLE]
        return replace(launch, body=renamed(named, {buffer: _variable(buffer) for buffer in arrays}))


def _variable(array: Var) -> Var:
    return tirx.decl_buffer(array.shape, str(array.dtype), str(array.name), scope=_VARIABLE)


def _named(body: Block) -> set[Store]:
    """The stores whose values can have a name."""
    once = {buffer: memory.reads for buffer, memory in plain_memory(body).items() if memory.stores == 1}
    return {
        store
        for block in every_block(body)
        for position, store in enumerate(block)
        if isinstance(store, Store)
        and store.buffer in once
        and not is_foreign(store.value)
        and sum(load.source.same_as(store.buffer) for load in first_loads(walk(block[position + 1 :])))
        == once[store.buffer]
    }


class Memory(NamedTuple):
    """How many statements store an element of a thread, and how often others read it."""

    stores: int
    reads: int


def plain_memory(body: Block) -> dict[Var, Memory]:
    """The integers and bools of threads that statements store and read, and use in no other way, in the order
    of their allocations."""
    stmts, addressed = list(walk(body)), addressed_in(body)
    alone = [stmt.buffer for stmt in stmts if isinstance(stmt, Alloc) and _is_one(stmt)]
    reads = Counter(load.source for load in first_loads(stmt for stmt in stmts if isinstance(stmt, _VALUES)))
    stores = Counter(stmt.buffer for stmt in stmts if isinstance(stmt, Store))
    uses = Counter(buffer for stmt in stmts if not isinstance(stmt, Alloc) for buffer in buffers(stmt))
    return {
        buffer: Memory(stores[buffer], reads[buffer])
        for buffer in alone
        if buffer not in addressed and uses[buffer] == reads[buffer] + stores[buffer]
    }


def _is_one(stmt: Alloc) -> bool:
    """Whether an allocation is one integer, or a bool, of a thread."""
    buffer = stmt.buffer
    kind = str(buffer.dtype)
    held = buffer.scope() in PER_THREAD and (kind == "bool" or kind.startswith(("int", "uint")))
    return held and "x" not in kind and is_single(buffer)


def first_loads(stmts: Iterable[Stmt]) -> Iterator[TensorLoad]:
    """Reads of the first element of whatever they read."""
    found = loads_of(*stmts)
    return (load for load in found if all(int_value(index) == 0 for index in load.indices))


class NamedMemory(Rewriter):
    """Rewrites values that read memory as the ``names`` that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[Var, Var] = {}

    def expr(self, expr: Expr) -> Expr:
        """A value that reads names."""

        def named(node: Expr) -> Var | None:
            return self.names.get(node.source) if isinstance(node, TensorLoad) else None

        return transform(expr, named)


class _Names(NamedMemory):
    """Rewrites statements with ``found`` stores as names, without the memory that they store to."""

    def __init__(self, found: set[Store]) -> None:
        super().__init__()
        self.names = {
            store.buffer: tirx.Var(str(store.buffer.name), str(store.buffer.dtype)) for store in found
        }

    def body(self, body: Block) -> Block:
        """The body of a launch."""
        return rewrite_blocks(self.block(body), self._without_memory)

    def _without_memory(self, block: Block) -> list[Stmt]:
        return [stmt for stmt in block if not isinstance(stmt, Alloc) or stmt.buffer not in self.names]

    def stmt(self, stmt: Stmt) -> Stmt:
        """A statement; a store of what has a name binds it."""
        if not isinstance(stmt, Store) or stmt.buffer not in self.names:
            return super().stmt(stmt)
        value = cast_to(self.expr(stmt.value), str(stmt.buffer.dtype))
        return Bind(self.names[stmt.buffer], value, loc=stmt.loc)
