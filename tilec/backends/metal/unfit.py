"""Statements of tile IR that Metal has nothing for."""

from __future__ import annotations

from collections.abc import Iterator

from tvm.ir import Expr, StringImm

from tilec.backends.metal.codegen.words import ATOMICS, OF_AUTHOR, refused, type_of
from tilec.dtypes import lookup
from tilec.ir.exprs import dtype_of
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.foreign import is_foreign, parts
from tilec.ir.nodes import Atomic, Kernel, Stmt, walk
from tilec.ir.nodes.barriers import AllocBarrier
from tilec.ir.nodes.threads import Lane
from tilec.ir.traits import buffers, expressions
from tilec.lowering.analysis.places import located

#: Types that no pass makes others of; those of less than a byte become bytes.
_WITHOUT = ("float64",)


def refuse_unfit(kernel: Kernel) -> None:
    """UnsupportedError at the first statement with float64, an atomic of other than 32 bits or of an order
    beyond relaxed, a barrier that counts arrivals, a vote on masks, or a call of an author's CUDA C++."""
    for stmt in walk(kernel.body):
        with located(stmt):
            _refuse(stmt)


def _refuse(stmt: Stmt) -> None:
    if isinstance(stmt, Lane) and stmt.kind.startswith("match"):
        raise refused(f"T.{stmt.kind}_sync", "Metal has no votes on masks")
    if isinstance(stmt, AllocBarrier):
        raise refused("T.alloc_barrier", "Metal has barriers of whole blocks alone")
    if isinstance(stmt, Atomic):
        _refuse_atomic(stmt)
    for name in _imported(stmt):
        raise refused(name, OF_AUTHOR)
    for dtype in _types(stmt):
        if dtype in _WITHOUT:
            type_of(dtype)


def _refuse_atomic(stmt: Atomic) -> None:
    dtype = str(stmt.buffer.dtype)
    if lookup(dtype).bits != 32:
        raise refused(f"atomics of {dtype}", ATOMICS)
    if stmt.order != "relaxed":
        raise refused(
            f'atomics of the order "{stmt.order}"',
            "Metal's atomics are relaxed",
            'give memory_order="relaxed"',
        )


def _imported(stmt: Stmt) -> Iterator[str]:
    """The functions of imported source that a statement calls."""
    called = (parts(node) for node in _nodes(stmt) if is_foreign(node))
    yield from (name for name, _, _, source in called if source)


def _types(stmt: Stmt) -> Iterator[str]:
    """Of all that a statement itself names and computes."""
    yield from (str(buffer.dtype) for buffer in buffers(stmt))
    yield from (dtype_of(node) for node in _nodes(stmt) if not isinstance(node, StringImm))


def _nodes(stmt: Stmt) -> Iterator[Expr]:
    return (node for expr in expressions(stmt) for node in walk_expr(expr))
