"""Loops of one thread over neighbours: as vectors where their elements lie together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, TypeGuard, cast

from tvm import sym, tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.accesses.bit_fields import BYTES, bit_field
from tilec.backends.cuda.analysis.accesses.neighbour_additions import Neighbours
from tilec.backends.cuda.nodes import ThreadVector
from tilec.ir.analysis.known_trips import counts_from_zero
from tilec.ir.exprs import dtype_of, inlined, int_value, reads, transform
from tilec.ir.nodes import Atomic, Bind, Block, For, Launch, Parallel, Stmt, Store, children, with_children
from tilec.lowering.analysis.accesses import accesses, stay_apart, values_of
from tilec.lowering.analysis.counted import counted
from tilec.lowering.passes.base import LaunchPass

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Trips of a loop that may become one vector.
_WIDTHS = (2, 4, 8, 16)


class VectoriseThreads(LaunchPass):
    """In: launches with thread indices. Out: their T.vectorized loops of stores and additions alone are
    ThreadVector, with indices simplified so that rows show, and so are additions to neighbours one after the
    other, as T.atomic_addx2 makes them, and loops that make bytes of packed bits in a thread's own memory.
    What a thread runs otherwise stays."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its vectors."""
        if not launch.thread_vars:
            return launch
        return replace(launch, body=_block(launch.body, counted(launch.thread_vars, launch.threads)))


def _block(block: Block, analyzer: sym.Analyzer) -> Block:
    return tuple(_stmt(stmt, analyzer) for stmt in _with_additions_joined(block))


def _with_additions_joined(block: Block) -> Iterator[Stmt]:
    """The statements of a block, of which the longest runs of additions to neighbours are loops."""
    rest = block
    while rest:
        run = cast("tuple[Atomic, ...]", tuple(takewhile(_is_added, rest)))
        joined = next(filter(None, (_joined(run[:count]) for count in sorted(_WIDTHS, reverse=True))), None)
        yield rest[0] if joined is None else joined
        rest = rest[1 if joined is None else int_value(joined.stop) :]


def _joined(run: Sequence[Atomic]) -> For | None:
    """Additions to neighbours as one loop; None where they are none, or are no vector."""
    if len(run) not in _WIDTHS:
        return None
    var = tirx.Var("v", "int32")
    made = Neighbours(var).joined(run)
    if made is None:
        return None
    zero, count, one = (tirx.const(number, "int32") for number in (0, len(run), 1))
    return For("vectorized", var, zero, count, one, (made,), loc=run[0].loc)


def _is_added(stmt: Stmt) -> TypeGuard[Atomic]:
    """Whether a statement adds to an element of memory, and asks for nothing else."""
    return isinstance(stmt, Atomic) and stmt.kind == "add" and stmt.prev is None and stmt.order == "relaxed"


def _stmt(stmt: Stmt, analyzer: sym.Analyzer) -> Stmt:
    if isinstance(stmt, Parallel):
        return stmt
    made = _loop(stmt, analyzer) if isinstance(stmt, For) else None
    if made is not None:
        return made
    return with_children(stmt, [_block(inner, analyzer) for inner in children(stmt)])


def _loop(loop: For, analyzer: sym.Analyzer) -> Stmt | None:
    """A loop that is T.vectorized, or makes bytes of bits, as a vector."""
    if loop.kind == "vectorized":
        return _vector(loop, analyzer)
    made = _vector(loop, analyzer) if all(map(_keeps_bytes, _stores(loop))) else None
    return made if made is not None and _unpacks(made, analyzer) else None


def _stores(loop: For) -> list[Store]:
    return [stmt for stmt in loop.body if isinstance(stmt, Store)]


def _keeps_bytes(store: Store) -> bool:
    """Whether a thread stores a byte for itself."""
    return bool(store.buffer.scope() == "local" and str(store.buffer.dtype) in BYTES)


def _unpacks(loop: For, analyzer: sym.Analyzer) -> bool:
    """Whether the bytes that trips store are made of bits, four at a time
    (`tilec.backends.cuda.emit.loops.quads`), and none of them reads any."""
    stores = _stores(loop)
    written = {store.buffer for store in stores}
    return all(
        bit_field(store.value, analyzer) is not None
        and not any(reads(expr, written) for expr in (*store.indices, store.value))
        for store in stores
    )


def _vector(loop: For, analyzer: sym.Analyzer) -> ThreadVector | None:
    """A loop as a vector; None where it is no loop of plain stores and additions with a width that vectors
    have, or its trips have to go in order."""
    count = int_value(loop.stop)
    if count not in _WIDTHS or not counts_from_zero(loop):
        return None
    binds = [stmt for stmt in loop.body if isinstance(stmt, Bind)]
    stores = [stmt for stmt in loop.body if isinstance(stmt, Store) or _is_added(stmt)]
    written = {store.buffer for store in stores}
    if len(binds) + len(stores) != len(loop.body) or any(reads(stmt.value, written) for stmt in binds):
        return None
    if not _in_any_order(loop, count):
        return None
    counted((loop.var,), (count,), analyzer)
    values = values_of(binds)
    body = tuple(_spelled(stmt, values, analyzer) for stmt in stores)
    return ThreadVector("vectorized", loop.var, loop.start, loop.stop, loop.step, body, loc=loop.loc)


def _in_any_order(loop: For, count: int) -> bool:
    """Whether no trip writes an element of memory that another one of ``count`` reads, or that another
    statement of it writes. What a thread keeps for itself is worked on trip by trip in any case."""
    items = [item for item in accesses(loop.body) if item.buffer.scope().startswith(("shared", "global"))]
    values = values_of(loop.body)
    return all(
        stay_apart(one, place, loop.var, count, values)
        for place in items
        for one in items
        if place.is_write and one is not place and one.buffer.same_as(place.buffer)
    )


def _spelled(store: Store | Atomic, values: Mapping[Var, Expr], analyzer: sym.Analyzer) -> Stmt:
    """A store without names, its places simplified."""

    def place(index: Expr) -> Expr:
        simplified = analyzer.simplify(value(index))
        return simplified if dtype_of(simplified) == dtype_of(index) else index

    def value(expr: Expr) -> Expr:
        return transform(inlined(expr, values), read)

    def read(node: Expr) -> Expr | None:
        if isinstance(node, TensorLoad):
            return tirx.BufferLoad(node.source, [place(index) for index in node.indices])
        return None

    return replace(store, indices=tuple(map(place, store.indices)), value=value(store.value))
