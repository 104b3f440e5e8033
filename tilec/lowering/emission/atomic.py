"""What atomic updates have in common on every target: they happen where the element exists, and give what it
held before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.lowering.emission.access import open_bounds
from tilec.lowering.emission.statements import guarded, sequence
from tilec.lowering.emission.storage import compute_type

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Atomic
    from tilec.lowering.emission.context import Context

#: The code of an update, which stores what the element held in the array that it is given, if any.
Update = Callable[["Var | None"], tirx.Stmt]


def emit_update(
    stmt: Atomic, update: Update, ctx: Context, tests: Sequence[Expr] = (), scope: str = ""
) -> tirx.Stmt | None:
    """``update`` where the element exists and all of ``tests`` hold, and the name of what the element held,
    which an array in ``scope`` keeps: 0 where there is no element."""
    held = None if stmt.prev is None else _array(stmt.prev, str(stmt.buffer.dtype), scope, ctx)
    conds = open_bounds(stmt.buffer, stmt.indices, ctx)
    parts: list[tirx.Stmt] = []
    if conds is not None:
        made = update(held)
        parts.append(guarded(made, [*([ctx.bounds(stmt.buffer, conds)] if conds else []), *tests]))
    if held is None:
        return sequence(parts)
    nothing, old = keep(held, tirx.const(0, str(held.dtype))), tirx.BufferLoad(held, [tirx.const(0)])
    return sequence([tirx.AllocBuffer(held), nothing, *parts, ctx.bind(stmt.prev, old)])


def _array(name: Var, dtype: str, scope: str, ctx: Context) -> Var:
    fresh = ctx.fresh(f"{name.name}_held", "int32").name
    return tirx.decl_buffer((1,), compute_type(dtype), name=fresh, scope=scope)


def keep(held: Var | None, old: Expr) -> tirx.Stmt:
    """``old`` into the array of an update; evaluated alone where there is none."""
    return tirx.Evaluate(old) if held is None else tirx.BufferStore(held, old, [tirx.const(0)])
