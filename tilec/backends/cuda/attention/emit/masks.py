"""Device code of masks of rows: ``S[i, j] = S[i, j] if j < limit(i) else other``.

Column j of a lane is a share of the lane, the same in all its registers, plus one of the register, which is
known at compile time. The first is taken from the limit once a row; a register compares with a constant.
"""

from __future__ import annotations

from tvm import tirx

from tilec.backends.cuda.attention.emit.context import AttentionContext
from tilec.backends.cuda.attention.nodes import RowMask
from tilec.backends.cuda.emit.loops.thread_loop import Iterations, over_layout
from tilec.backends.cuda.emit.statements import emit
from tilec.ir.exprs import cast_to, int_value
from tilec.ir.layout import Layout
from tilec.lowering.emission.statements import sequence


@emit.register(RowMask)
def _emit_mask(stmt: RowMask, ctx: AttentionContext) -> tirx.Stmt | None:
    fragment = ctx.fragments[stmt.tile.buffer]
    rows, columns = (int_value(extent) or 1 for extent in stmt.tile.extent)
    across = Layout((fragment.layout.digits[1],))
    column = tirx.Var("column", "int32")

    def row() -> tirx.Stmt:
        left, past = ctx.fresh("left", "int32"), ctx.fresh("past", "int32")

        def element() -> tirx.Stmt:
            place = ctx.register(stmt.tile.buffer, (stmt.row, column))
            value = tirx.BufferLoad(fragment.data, [place])
            share = _share(column, True, ctx)
            kept = tirx.LT(share, left)
            kept = kept if stmt.begin is None else tirx.And(kept, tirx.GE(share, past))
            return tirx.BufferStore(fragment.data, tirx.Select(kept, value, ctx.value(stmt.other)), [place])

        inner = over_layout(Iterations((column,), (columns,), across), element, ctx)
        assert inner is not None
        binds = zip((left, past), stmt.body, strict=False)
        return sequence([*(_bound(name, bind.value, column, ctx) for name, bind in binds), inner])

    down = Layout((fragment.layout.digits[0],))
    return over_layout(Iterations((stmt.row,), (rows,), down), row, ctx)


def _bound(name: tirx.Var, value: tirx.Expr, column: tirx.Var, ctx: AttentionContext) -> tirx.Stmt:
    """A bound of columns as one of the registers' share in them."""
    found = cast_to(ctx.value(value), "int32")
    return tirx.Bind(name, found - _share(column, False, ctx))


def _share(column: tirx.Var, held: bool, ctx: AttentionContext) -> tirx.Expr:
    """The part of a column's number that is the register's (``held``), or the thread's."""
    total: tirx.Expr = tirx.const(0, "int32")
    for part in ctx.digits[column]:
        if part.in_register == held:
            total = total + part.value * tirx.const(part.weight, "int32")
    return total
