"""What emission of statements has in common on all targets: blocks, sequences, branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from tvm import tirx

from tilec.ir.nodes import Assume, Bind, Block, If, Stmt
from tilec.lowering.analysis.places import located
from tilec.lowering.emission.context import Context
from tilec.lowering.exprs import dtype_of, loads

if TYPE_CHECKING:
    from tvm.ir import Expr

State = TypeVar("State", bound=Context)
#: The TIR of one statement; None where nothing is left to do.
Emit = Callable[[Any, State], "tirx.Stmt | None"]
#: Told of a statement and of those behind it before it is emitted.
LookAhead = Callable[[Stmt, Block], None]


def emitted(block: Block, ctx: State, emit: Emit[State], ahead: LookAhead | None = None) -> tirx.Stmt | None:
    """The TIR of a block; what it defines and assumes ends with it."""
    with ctx.scope():
        return sequence(_from(block, 0, ctx, emit, ahead))


def _from(
    block: Block, start: int, ctx: State, emit: Emit[State], ahead: LookAhead | None
) -> list[tirx.Stmt]:
    parts: list[tirx.Stmt] = []
    for position in range(start, len(block)):
        stmt = block[position]
        if isinstance(stmt, Assume):
            with ctx.facts.remember(stmt.cond):
                return parts + _from(block, position + 1, ctx, emit, ahead)
        if ahead is not None:
            ahead(stmt, block[position + 1 :])
        with located(stmt), ctx.at(stmt):
            part = emit(stmt, ctx)
        parts += [part] if part is not None else []
    return parts


def sequence(parts: list[tirx.Stmt]) -> tirx.Stmt | None:
    """Statements one after another; None for none."""
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else tirx.SeqStmt(parts)


def decided(
    stmt: If, cond: Expr, ctx: State, emit_block: Callable[[Block, State], tirx.Stmt | None]
) -> tirx.Stmt | None:
    """A branch at run time, each side emitted with what it knows of the condition."""
    with ctx.facts.remember(stmt.cond):
        then = emit_block(stmt.then, ctx)
    with ctx.facts.remember(stmt.cond, False):
        orelse = emit_block(stmt.orelse, ctx)
    return branch(cond, then, orelse)


def learn_binding(stmt: Bind, ctx: Context) -> None:
    """Makes index arithmetic that has a name known to proofs."""
    if dtype_of(stmt.var).startswith("int") and not any(True for _ in loads(stmt.value)):
        ctx.facts.bind_value(stmt.var, stmt.value)


def branch(cond: Expr, then: tirx.Stmt | None, orelse: tirx.Stmt | None) -> tirx.Stmt | None:
    """A run-time branch; None for one without effect."""
    if then is None and orelse is None:
        return None
    if then is None:
        return tirx.IfThenElse(tirx.Not(cond), orelse, None)
    return tirx.IfThenElse(cond, then, orelse)
