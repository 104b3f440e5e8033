"""Device code of the scalar statements before a launch's loop; every role runs its own copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.warp_roles.emit.build import let, put, registers
from tilec.ir.exprs import dtype_of, loads
from tilec.ir.nodes import Alloc, Bind, Block, For, If, Stmt, Store

if TYPE_CHECKING:
    from tilec.backends.cuda.matmul.emit.context import MatmulContext


def emit_head(stmt: Stmt, ctx: MatmulContext) -> None:
    """One statement, of those that `tilec.backends.cuda.matmul.match.heads.is_scalar` takes."""
    if isinstance(stmt, Bind):
        _bind(stmt, ctx)
    elif isinstance(stmt, Alloc):
        dtype = str(stmt.buffer.dtype)
        ctx.scalars[stmt.buffer] = registers(1, dtype)
        first = tirx.const(0, dtype) if stmt.init is None else ctx.value(stmt.init)
        put(ctx.scalars[stmt.buffer], first)
    elif isinstance(stmt, Store):
        put(ctx.scalars[stmt.buffer], ctx.value(stmt.value))
    elif isinstance(stmt, For):
        with T.serial(ctx.value(stmt.start), ctx.value(stmt.stop)) as trip, ctx.scope({stmt.var: trip}):
            _block(stmt.body, ctx)
    elif isinstance(stmt, If):
        _branch(stmt, ctx)


def _block(block: Block, ctx: MatmulContext) -> None:
    for stmt in block:
        emit_head(stmt, ctx)


def _branch(stmt: If, ctx: MatmulContext) -> None:
    with T.If(ctx.value(stmt.cond)):
        with T.Then():
            _block(stmt.then, ctx)
        if stmt.orelse:
            with T.Else():
                _block(stmt.orelse, ctx)


def _bind(stmt: Bind, ctx: MatmulContext) -> None:
    """A name, and what it says about bounds."""
    if dtype_of(stmt.var).startswith("int") and not any(True for _ in loads(stmt.value)):
        ctx.facts.bind_value(stmt.var, stmt.value)
    ctx.env[stmt.var] = let(str(stmt.var.name), ctx.value(stmt.value))
