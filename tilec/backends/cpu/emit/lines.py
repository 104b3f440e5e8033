"""TIR of `Print` and `Check`: calls of the library's runtime (runtime_c/src/launch/lines.c)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.statements import emit
from tilec.backends.cpu.emit.vectors.lanes import NotVectorisable
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import Check, Print
from tilec.lowering.emission.lines import pieces

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext


@emit.register(Print)
def _emit_print(stmt: Print, ctx: LaneContext) -> tirx.Stmt | None:
    _one_at_a_time(ctx, "lines are written", "print outside of the loop")
    calls = [_call("text", one) if isinstance(one, str) else _call(dtype_of(one), one)
             for one in pieces(stmt, ctx)]  # fmt: skip
    return tirx.SeqStmt([*calls, _call("end")])


@emit.register(Check)
def _emit_check(stmt: Check, ctx: LaneContext) -> tirx.Stmt | None:
    _one_at_a_time(ctx, "elements are checked", "assert outside of the loop")
    failed = tirx.call_extern("int32", "tilec_check_failed", stmt.text)
    return tirx.IfThenElse(tirx.Not(ctx.value(stmt.cond)), tirx.Evaluate(failed), None)


def _call(kind: str, *args: Expr | str) -> tirx.Stmt:
    return tirx.Evaluate(tirx.call_extern("int32", f"tilec_line_{kind}", *args))


def _one_at_a_time(ctx: LaneContext, told: str, remedy: str) -> None:
    if ctx.lanes is not None:
        raise NotVectorisable(f"{told} one after the other", remedy)
