"""Loops of atomic updates that nothing comes between are loops of stores, which have vectors.

A block's own tiles are its own. Tensors are where one call of a launch's function runs all blocks: calls at
the same time may not share what they write (docs/abi.md). Whether it does is known when the launch runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import as_expr, int_value, reads
from tilec.ir.nodes import Atomic, Launch, Parallel, Stmt, is_global, walk
from tilec.ir.traits import Rewriter
from tilec.lowering.analysis.updates import UPDATES, stored
from tilec.lowering.emission.parameters import in_64_bits
from tilec.lowering.emission.statements import branch

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.ir.nodes import Block

_ALWAYS = tirx.const(True, "bool")


def open_updates(launch: Launch, ctx: LaneContext, begin: Var, end: Var) -> list[tirx.Stmt]:
    """The name of whether a call from block ``begin`` to ``end`` is all of a launch that updates tensors."""
    if not _updates_tensors(launch.body):
        return []
    blocks: Expr = tirx.const(1, "int64")
    for extent in launch.grid:
        blocks = blocks * in_64_bits(ctx.value(as_expr(extent)))
    if int_value(ctx.facts.analyzer.simplify(blocks)) == 1:
        ctx.alone = _ALWAYS
        return []
    ctx.alone = ctx.fresh("alone", "bool")
    return [tirx.Bind(ctx.alone, tirx.And(tirx.EQ(begin, tirx.const(0, "int64")), tirx.EQ(end, blocks)))]


def is_undisturbed(ctx: LaneContext) -> bool:
    """Whether nothing else updates tensors where code is being emitted."""
    return ctx.alone is _ALWAYS


def emit_updates(
    stmt: Parallel, ctx: LaneContext, loops: Callable[[Parallel], tirx.Stmt | None]
) -> tirx.Stmt | None:
    """What ``loops`` makes of a loop; twice where it updates tensors that others may update, too. What a loop
    of stores loses it loses with others as well: that is said once."""
    own = replace(stmt, body=_Stores(tensors=False).block(stmt.body))
    if ctx.alone is None or not _updates_tensors(stmt.body):
        return loops(own)
    test, before = ctx.alone, len(ctx.roads)
    stores = replace(stmt, body=_Stores(tensors=True).block(stmt.body))
    with ctx.updates_scope(_ALWAYS):
        alone = loops(stores)
    if test is _ALWAYS:
        return alone
    lost = any(road.loss is not None for road in ctx.roads[before:])
    said = len(ctx.roads)
    with ctx.updates_scope(None):
        shared = loops(own)
    if lost:
        del ctx.roads[said:]
    return branch(test, alone, shared)


def _updates_tensors(body: Block) -> bool:
    return any(isinstance(stmt, Atomic) and is_global(stmt.buffer) for stmt in walk(body))


class _Stores(Rewriter):
    """Updates of a block's own tiles, and of ``tensors``, as stores of what they leave."""

    def __init__(self, tensors: bool) -> None:
        super().__init__()
        self._tensors = tensors

    def stmt(self, stmt: Stmt) -> Stmt:
        """A statement, an update as a store where it may be one."""
        stmt = super().stmt(stmt)
        if not isinstance(stmt, Atomic) or stmt.kind not in UPDATES or stmt.prev is not None:
            return stmt
        if reads(stmt.value, (stmt.buffer,)) or (is_global(stmt.buffer) and not self._tensors):
            return stmt
        return stored(stmt)
