"""What emission of statements has in common on all targets: names, sequences, branches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import all_of, int32
from tilec.ir.foreign import is_foreign, parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Bind, If, Store
    from tilec.lowering.emission.context import Context


def sequence(parts: list[tirx.Stmt]) -> tirx.Stmt | None:
    """Statements one after another; None for none."""
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else tirx.SeqStmt(parts)


def guarded(stmt: tirx.Stmt, tests: Sequence[Expr]) -> tirx.Stmt:
    """``stmt`` where all of ``tests`` hold."""
    return tirx.IfThenElse(all_of(list(tests)), stmt, None) if tests else stmt


def void_call(stmt: Store, ctx: Context) -> tirx.Stmt | None:
    """The call that a store of nothing stands for; None for any other store."""
    nothing = is_foreign(stmt.value) and parts(stmt.value)[1] == "void"
    return tirx.Evaluate(ctx.value(stmt.value)) if nothing else None


def emit_bind(stmt: Bind, ctx: Context) -> tirx.Stmt:
    """The value under its name; proofs know index arithmetic that has one."""
    with ctx.naming():
        value = ctx.value(stmt.value)
    learn_binding(stmt, ctx)
    return ctx.bind(stmt.var, ctx.computed_once(value))


def learn_binding(stmt: Bind, ctx: Context) -> None:
    """Makes index arithmetic that has a name known to proofs, and the range of integers that are read."""
    ctx.facts.learn_binding(stmt.var, stmt.value)


def decided(stmt: If, cond: Expr, ctx: Context) -> tirx.Stmt | None:
    """A branch at run time, each side emitted with what it knows of the condition."""
    with ctx.facts.remember(stmt.cond):
        then = ctx.block(stmt.then)
    with ctx.facts.remember(stmt.cond, False):
        orelse = ctx.block(stmt.orelse)
    return branch(cond, then, orelse)


def branch(cond: Expr, then: tirx.Stmt | None, orelse: tirx.Stmt | None) -> tirx.Stmt | None:
    """A run-time branch; None for one without effect."""
    if then is None and orelse is None:
        return None
    if then is None:
        return tirx.IfThenElse(tirx.Not(cond), orelse, None)
    return tirx.IfThenElse(cond, then, orelse)


def store_at(to: Var, place: int, value: Expr) -> tirx.Stmt:
    """The store of one element, whose place in its buffer is known."""
    return tirx.BufferStore(to, value, [int32(place)])
