"""Which buffers a kernel reads and writes, as `tilec.ir.traits` says, which takes TVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tilec.ir import nodes as ir

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.stmt import Buffer


def access(body: ir.Block, buffer: Var) -> str:
    """ "in", "out" or "inout": what the statements do with a buffer; "in" if they never touch it. One that
    they read is "out" where they write all of that first."""
    from tilec.ir.analysis.written_first import written_first

    if not any(_has(buffer, written_by(stmt)) for stmt in ir.walk(body)):
        return "in"
    reads = any(_has(buffer, read_by(stmt)) for stmt in ir.walk(body))
    return "inout" if reads and not written_first(body, buffer) else "out"


def _has(buffer: Var, buffers: Iterable[Buffer]) -> bool:
    return any(buffer.same_as(other) for other in buffers)


def written_by(stmt: ir.Stmt) -> Iterable[Buffer]:
    """The buffers that a statement writes itself, without the blocks inside it."""
    from tilec.ir.traits import written

    return written(stmt)


def read_by(stmt: ir.Stmt) -> Iterable[Buffer]:
    """The buffers that a statement reads itself, without the blocks inside it."""
    from tilec.ir.traits import read

    return read(stmt)


def expressions_of(stmt: ir.Stmt) -> Iterator[Expr]:
    """Every expression that a statement itself holds, those of its regions included."""
    from tilec.ir.traits import expressions

    return expressions(stmt)
