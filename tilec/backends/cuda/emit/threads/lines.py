"""Device TIR of `Print` and `Check`: printf, which device code has without a header, and a trap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.device.says import FORMATS, escaped, printed, trapped
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.statements import call, emit
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import Check, Print
from tilec.lowering.emission.lines import pieces
from tilec.lowering.emission.statements import guarded, sequence

if TYPE_CHECKING:
    from tvm.ir import Expr


@emit.register(Print)
def _emit_print(stmt: Print, ctx: DeviceContext) -> tirx.Stmt | None:
    parts = list(pieces(stmt, ctx))
    values = [part for part in parts if not isinstance(part, str)]
    kinds = [dtype_of(value) for value in values]
    text = "".join(escaped(one) if isinstance(one, str) else FORMATS[dtype_of(one)][0] for one in parts)
    made = call(printed(text, kinds).call(*values))
    return guarded(made, _own(ctx))


@emit.register(Check)
def _emit_check(stmt: Check, ctx: DeviceContext) -> tirx.Stmt | None:
    fails = call(trapped(stmt.text).call())
    return sequence([tirx.IfThenElse(tirx.Not(ctx.value(stmt.cond)), fails, None)])


def _own(ctx: DeviceContext) -> list[Expr]:
    """In a loop, whether the iteration is this thread's to print; outside of loops every thread prints."""
    once = ctx.once
    if once is None or (isinstance(once, tirx.EQ) and once.a.same_as(ctx.thread)):
        return []
    return [once]
