"""Iterations that fill no vector, of loops that add up: one more vector, whose first lanes alone take part.

for i in parallel(28): s = 0; for k in serial(0, 9): s = s + X[i + k] * W[k]; Y[i] = s
->
for i in parallel(32): s = 0; for k in serial(0, 9): if i < 28: s = s + X[i + k] * W[k]; if i < 28: Y[i] = s

Vectors of 8 and 4 lanes would take as long for their loops as one of 16.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.loops.lane_axis import lane_count
from tilec.backends.cpu.emit.loops.sums.joined import adds_up
from tilec.ir.analysis.renaming import copied, renamed
from tilec.ir.exprs import dtype_of, int_value
from tilec.ir.nodes import If, Parallel, Store
from tilec.lowering.passes.base import rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.ir.nodes import Stmt


def in_whole_vectors(loop: Parallel, lane: int, ctx: LaneContext) -> Parallel | None:
    """What does in whole vectors of lanes what ``loop`` does, its stores under the condition that tells which
    lanes there are; None where these fill one vector as they are, or add up nothing."""
    width, extent = lane_count(loop.body, ctx), int_value(loop.extents[lane]) or 0
    left = extent % width
    fills_one = extent < width and bin(left).count("1") == 1
    if not left or fills_one or not adds_up(loop, lane, ctx):
        return None
    old = loop.vars[lane]
    var = tirx.Var(str(old.name), dtype_of(old))
    inside = var < tirx.const(extent, dtype_of(var))
    body = copied(renamed(loop.body, {old: var}))
    return replace(
        loop,
        vars=(*loop.vars[:lane], var, *loop.vars[lane + 1 :]),
        extents=(*loop.extents[:lane], -(-extent // width) * width, *loop.extents[lane + 1 :]),
        body=rewrite_blocks(body, lambda block: tuple(_under(inside, stmt) for stmt in block)),
    )


def _under(cond: Expr, stmt: Stmt) -> Stmt:
    return If(cond, (stmt,), loc=stmt.loc) if isinstance(stmt, Store) else stmt
