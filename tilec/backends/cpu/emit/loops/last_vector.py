"""Which loops do what is left behind their whole vectors by one vector whose last lanes touch no memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.ir.exprs import DIVISIONS, dtype_of
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.nodes import Bind, Store
from tilec.ir.traits import expressions

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.ir.nodes import Block

#: Vectors of a loop up to which its end is worth a vector of its own.
_FEW_VECTORS = 4


def suits_last_vector(extent: Expr, body: Block, width: int, ctx: LaneContext) -> bool:
    """Whether a loop is short and does nothing but stores, of values that lanes without elements may compute
    (no quotients of integers)."""
    if width < 4 or ctx.mask is not None or ctx.accumulators or not _is_short(extent, width, ctx):
        return False
    return all(isinstance(stmt, Store) for stmt in body) and _takes_any(body)


def suits_last_terms(body: Block, width: int, ctx: LaneContext) -> bool:
    """Whether a loop does nothing but take into what its lanes hold terms that lanes without elements may
    compute."""
    if width < 4 or ctx.mask is not None or ctx.first is not None:
        return False
    kept = all(isinstance(stmt, Bind) or stmt in ctx.accumulators for stmt in body)
    return kept and bool(ctx.accumulators) and _takes_any(body)


def _takes_any(body: Block) -> bool:
    nodes = (node for stmt in body for expr in expressions(stmt) for node in walk_expr(expr))
    return not any(isinstance(node, DIVISIONS) and "int" in dtype_of(node) for node in nodes)


def _is_short(extent: Expr, width: int, ctx: LaneContext) -> bool:
    most = ctx.facts.analyzer.const_int_bound(extent).max_value
    return bool(most <= _FEW_VECTORS * width)
