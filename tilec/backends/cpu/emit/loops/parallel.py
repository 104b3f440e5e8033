"""Parallel as a nest of loops, the contiguous axis innermost."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.loops.lane_axis import lane_axis
from tilec.backends.cpu.emit.loops.named_reads import with_named_reads
from tilec.backends.cpu.emit.loops.nest import Nest, emit_nest, with_open_conditions
from tilec.backends.cpu.emit.loops.own_rows import with_own_rows
from tilec.backends.cpu.emit.loops.splits.alignments import emit_aligned
from tilec.backends.cpu.emit.loops.splits.colours import of_one_colour
from tilec.backends.cpu.emit.loops.splits.range_splits import split_point
from tilec.backends.cpu.emit.loops.splits.residues import by_residue
from tilec.backends.cpu.emit.loops.splits.versions import corners, without_named_conditions
from tilec.backends.cpu.emit.loops.sums.joined import joined_iterations, joined_vectors
from tilec.backends.cpu.emit.loops.sums.turns import in_turns
from tilec.backends.cpu.emit.loops.sums.whole_vectors import in_whole_vectors
from tilec.backends.cpu.emit.loops.updates import emit_updates
from tilec.backends.cpu.emit.statements import emit
from tilec.backends.cpu.emit.vectors.lanes import NotVectorisable
from tilec.errors import UnsupportedError
from tilec.ir.exprs import all_of, as_expr, dtype_of, each_once
from tilec.ir.nodes import Bind, Block, Break, If, Parallel, walk
from tilec.ir.places import place_of
from tilec.lowering.analysis.continues import without_continue
from tilec.lowering.emission.statements import branch, learn_binding, sequence

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext


@emit.register(Parallel)
def _emit_parallel(stmt: Parallel, ctx: LaneContext) -> tirx.Stmt | None:
    if ctx.lanes is not None:
        raise NotVectorisable("the loop inside runs over the lanes", "join the loops in one T.Parallel")
    return emit_updates(stmt, ctx, lambda loop: _emit_loops(loop, ctx))


def _emit_loops(stmt: Parallel, ctx: LaneContext) -> tirx.Stmt | None:
    body = without_named_conditions(without_continue(stmt.body))
    if any(isinstance(inner, Break) for inner in walk(body)) and _leaves_nest(body):
        raise UnsupportedError("break cannot leave a T.Parallel loop", place=place_of(stmt),
                               remedy="use a serial loop, or an if around the rest of the body")  # fmt: skip
    lane = lane_axis(stmt, ctx)
    parts = by_residue(of_one_colour(replace(stmt, body=body), lane), lane, ctx)
    loops = [loop for part in parts for loop in joined_iterations(part, lane, ctx)]
    emitted = [_emit_vectors(loop, lane, ctx) for loop in loops]
    return sequence([part for part in emitted if part is not None])


def _emit_vectors(loop: Parallel, lane: int, ctx: LaneContext) -> tirx.Stmt | None:
    """A loop, several vectors of lanes at a time where no condition tells them apart; where one may, a test
    in front of the loop says whether it does."""
    nest = _nest(loop, lane, ctx)
    masked = _emit_whole(loop, lane, nest, ctx)
    if masked is not None:
        return masked
    found = joined_vectors(loop, lane, ctx)
    wide, conds = found or (None, [])
    unknown = each_once(cond for cond in conds if ctx.facts.prove(cond) is not True)
    ends = corners(unknown, nest, ctx)
    if wide is None or ends is None:
        return _emit_nest(nest, ctx)
    if not ends:
        return _emit_nest(_nest(wide, len(wide.vars) - 1, ctx), ctx)
    test = all_of([end for _, end in ends])
    with ctx.facts.assume(test):
        then = _emit_nest(_nest(wide, len(wide.vars) - 1, ctx), ctx)
    return branch(
        ctx.value(test), then, _emit_ends(wide, unknown, loop.vars[lane], ctx) or _emit_nest(nest, ctx)
    )


def _emit_whole(loop: Parallel, lane: int, nest: Nest, ctx: LaneContext) -> tirx.Stmt | None:
    """A loop whose iterations fill no vector, by masks; None where it is better as it is."""
    whole = in_whole_vectors(loop, lane, ctx) if ctx.recorder is None else None
    if whole is None or with_open_conditions(nest, ctx)[1]:
        return None
    found = joined_vectors(whole, lane, ctx)
    if found is None:
        return _emit_masked(whole, lane, ctx)
    wide, _ = found
    return _emit_masked(wide, len(wide.vars) - 1, ctx)


def _emit_ends(wide: Parallel, conds: list[Expr], lane: Var, ctx: LaneContext) -> tirx.Stmt | None:
    """A loop several vectors at a time, of the lanes that ``conds`` hold for, which are the first ones; None
    where others are, or there are no masks."""
    points = [split_point(ctx.facts.inline(cond), lane) for cond in conds]
    if ctx.recorder is not None or not all(point is not None and point[1] for point in points):
        return None
    return _emit_masked(wide, len(wide.vars) - 1, ctx)


def _emit_masked(loop: Parallel, lane: int, ctx: LaneContext) -> tirx.Stmt | None:
    """A loop in which conditions that hold for the first lanes are masks; None where no instruction has
    masks for what they read and write."""
    nest = replace(_nest(loop, lane, ctx), general=True)
    with suppress(NotVectorisable), ctx.scope(), ctx.lane_scope(None), ctx.ends_scope():
        return emit_nest(nest, ctx)
    return None


def _emit_nest(nest: Nest, ctx: LaneContext) -> tirx.Stmt | None:
    with ctx.scope(), ctx.lane_scope(None):
        return emit_aligned(nest, ctx)


def _nest(stmt: Parallel, lane: int, ctx: LaneContext) -> Nest:
    """The loops of a Parallel, of which an axis has the lanes: the innermost one."""
    body = with_named_reads(in_turns(stmt, lane).body, stmt.vars[lane])
    body = body if ctx.in_order else with_own_rows(body, stmt.vars[lane])
    loops = []
    for axis in [axis for axis in range(len(stmt.vars)) if axis != lane] + [lane]:
        var, extent = stmt.vars[axis], as_expr(stmt.extents[axis], dtype_of(stmt.vars[axis]))
        ctx.facts.bind_range(var, 0, extent)
        loops.append((var, tirx.const(0, dtype_of(var)), extent))
    _bind_indices(body, ctx)
    return Nest(tuple(loops), body)


def _leaves_nest(body: Block) -> bool:
    return any(isinstance(s, Break) or (isinstance(s, If) and _leaves_nest(s.then + s.orelse)) for s in body)


def _bind_indices(body: Block, ctx: LaneContext) -> None:
    """Makes the index arithmetic that the body names known before the body is looked at."""
    for stmt in walk(body):
        if isinstance(stmt, Bind):
            learn_binding(stmt, ctx)
