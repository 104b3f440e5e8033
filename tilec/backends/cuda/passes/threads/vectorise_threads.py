"""Loops of one thread over neighbours: as vectors where their elements lie together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import Range, TensorLoad

from tilec.backends.cuda.analysis.accesses.bit_fields import BYTES, bit_field
from tilec.backends.cuda.nodes import ThreadVector
from tilec.ir.analysis.known_trips import counts_from_zero
from tilec.ir.exprs import dtype_of, inlined, int_value, reads, transform
from tilec.ir.nodes import Bind, Block, For, Launch, Parallel, Stmt, Store, children, with_children
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.passes.base import LaunchPass

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


#: Trips of a loop that may become one vector.
_WIDTHS = (2, 4, 8, 16)


class VectoriseThreads(LaunchPass):
    """In: launches with thread indices. Out: their T.vectorized loops of stores alone are ThreadVector, with
    indices simplified so that rows show, and so are loops that make bytes of packed bits in a thread's own
    memory. What a thread runs otherwise stays."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its vectors."""
        if not launch.thread_vars:
            return launch
        analyzer = sym.Analyzer()
        for var, extent in zip(launch.thread_vars, launch.threads, strict=True):
            analyzer.bind(var, Range.from_min_extent(0, extent))
        return replace(launch, body=_block(launch.body, analyzer))


def _block(block: Block, analyzer: sym.Analyzer) -> Block:
    return tuple(_stmt(stmt, analyzer) for stmt in block)


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
    """A loop as a vector; None where it is no loop of plain stores with a width that vectors have."""
    count = int_value(loop.stop)
    if count not in _WIDTHS or not counts_from_zero(loop):
        return None
    binds = [stmt for stmt in loop.body if isinstance(stmt, Bind)]
    stores = _stores(loop)
    written = {store.buffer for store in stores}
    if len(binds) + len(stores) != len(loop.body) or any(reads(stmt.value, written) for stmt in binds):
        return None
    analyzer.bind(loop.var, Range.from_min_extent(0, count))
    values = values_of(binds)
    body = tuple(_spelled(stmt, values, analyzer) for stmt in stores)
    return ThreadVector("vectorized", loop.var, loop.start, loop.stop, loop.step, body, loc=loop.loc)


def _spelled(store: Store, values: Mapping[Var, Expr], analyzer: sym.Analyzer) -> Store:
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
