"""Loop nests of independent iterations: bounds become loop limits before anything runs inside.

A nest is emitted from the outside in. At every level the bounds that are still open are found by a dry run
of the body. Those that depend on the variable of the level alone split its range, ``i < min(extent, M - b)``,
so that the body inside has none left; those that depend on nothing inside are tested once before the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cpu.emit.loops.lane_axis import lane_count
from tilec.backends.cpu.emit.loops.splits.range_splits import is_invariant, split_point, written_buffers
from tilec.backends.cpu.emit.loops.sums.accumulators import finish_all, make_accumulators
from tilec.backends.cpu.emit.loops.vectors import emit_lanes
from tilec.backends.cpu.emit.vectors.streams import emit_streaming
from tilec.ir.exprs import all_of, choice_of, dtype_of, each_once, int_value, walk
from tilec.ir.nodes import Bind, Block
from tilec.lowering.analysis.accumulations import Accumulation, find_accumulations
from tilec.lowering.emission.access import clamped
from tilec.lowering.emission.statements import branch, sequence

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext, Partial
    from tilec.ir.nodes import Stmt, Store

#: Open bounds of one level that are told apart one by one, every combination with code of its own. With more
#: of them the iterations where all hold have their own code, and one general form serves all others.
_MOST_CASES = 2


@dataclass(frozen=True, eq=False)
class Look:
    """What a dry run of a body asks for: bounds that are open, and conditions of choices. It asks for the
    same as long as nothing is learnt, and stores add to the same registers."""

    opened: Sequence[Expr]
    choices: Sequence[Expr]
    state: int
    accumulators: Mapping[Store, Partial]

    def holds(self, ctx: LaneContext) -> bool:
        """Whether a dry run would ask for this again."""
        return self.state == ctx.facts.state and self.accumulators is ctx.accumulators


@dataclass(frozen=True, eq=False)
class Nest:
    """What is left of a Parallel: loops from the outside in, each var over [start, stop), and the body. In a
    ``general`` nest open bounds are tested where they stand; in a ``closed`` one none is left. ``look`` is
    that of the last dry run of the body."""

    loops: tuple[tuple[Var, Expr, Expr], ...]
    body: Block
    general: bool = False
    closed: bool = False
    look: Look | None = None

    @property
    def vars(self) -> tuple[Var, ...]:
        """The loop variables."""
        return tuple(var for var, _, _ in self.loops)


def emit_nest(nest: Nest, ctx: LaneContext) -> tirx.Stmt | None:
    """The TIR of a nest under the facts that hold."""
    with ctx.scope():
        hoisted, nest = _hoist(nest, ctx)
        rest = _emit_tested(nest, ctx)
        return None if rest is None else sequence([*hoisted, rest])


def _hoist(nest: Nest, ctx: LaneContext) -> tuple[list[tirx.Stmt], Nest]:
    """Emits the bindings of the body that no loop of the nest changes."""
    inner, written = list(nest.vars), written_buffers(nest.body)
    parts: list[tirx.Stmt] = []
    rest: list[Stmt] = []
    look = nest.look
    for stmt in nest.body:
        if not (isinstance(stmt, Bind) and is_invariant(stmt.value, inner, written, ctx)):
            rest.append(stmt)
            continue
        parts.append(ctx.emit(stmt))
        look = None if _asks(stmt.value) else look
    return parts, replace(nest, body=tuple(rest), look=look)


def _asks(value: Expr) -> bool:
    """Whether a dry run may ask for something on behalf of a value."""
    return any(type(node) is TensorLoad or choice_of(node) is not None for node in walk(value))


def _emit_tested(nest: Nest, ctx: LaneContext) -> tirx.Stmt | None:
    """Tests the open conditions that no loop of the nest changes, then goes on to the loops."""
    if not nest.loops:
        return ctx.block(nest.body)
    nest, conds = with_open_conditions(nest, ctx)
    written = written_buffers(nest.body)
    fixed = [cond for cond in conds if is_invariant(cond, nest.vars, written, ctx)]
    if fixed:
        return _unswitched(nest, fixed, ctx)
    return _emit_accumulating(nest, conds, ctx)


def with_open_conditions(nest: Nest, ctx: LaneContext) -> tuple[Nest, list[Expr]]:
    """The nest after a look at its body, and the conditions there that are not decided, each once. A general
    nest leaves them where they are."""
    if nest.general or nest.closed:
        return nest, []
    look = looked_at(nest, ctx)
    return replace(nest, look=look), each_once(map(ctx.facts.inline, look.opened))


def looked_at(nest: Nest, ctx: LaneContext) -> Look:
    """What the body asks for: it is emitted once in vain, unless the last look holds."""
    if nest.look is not None and nest.look.holds(ctx):
        return nest.look
    dry = ctx.recording()
    for var in nest.vars:
        dry.define(var)
    dry.block(nest.body)
    return Look(dry.recorder or (), dry.choices, ctx.facts.state, ctx.accumulators)


def _unswitched(nest: Nest, conds: list[Expr], ctx: LaneContext) -> tirx.Stmt | None:
    """A branch before the loops: one condition at a time, or all of them at once where there are many."""
    few = len(conds) <= _MOST_CASES
    cond = conds[0] if few else all_of(conds)
    test = ctx.value(cond)
    with ctx.facts.assume(cond):
        then = emit_nest(nest, ctx)
    with ctx.facts.assume(cond, False):
        orelse = emit_nest(nest if few else replace(nest, general=True), ctx)
    return branch(test, then, orelse)


def _emit_accumulating(nest: Nest, conds: Sequence[Expr], ctx: LaneContext) -> tirx.Stmt | None:
    """The loops with the accumulations that cross the lanes of the innermost one, and these loops: their
    partial results are combined behind the outermost loop that has the element in common."""
    width = lane_count(nest.body, ctx)
    found = make_accumulators(_accumulations(nest, ctx), width, ctx)
    with ctx.accumulate_scope({item.origin.store: item for item in found}):
        inner = _emit_range(nest, conds, ctx)
    if inner is None:
        return None
    start = [part for item in found for part in item.start()]
    return sequence([*start, inner, *finish_all(found, ctx)])


def _accumulations(nest: Nest, ctx: LaneContext) -> list[Accumulation]:
    """Those of all loops of a nest that no loop around them has."""
    first, *others = (find_accumulations(nest.body, var) for var in nest.vars)
    kept = [{item.store for item in items} for items in others]
    return [
        item
        for item in first
        if item.store not in ctx.accumulators and all(item.store in stores for stores in kept)
    ]


def _emit_range(nest: Nest, conds: Sequence[Expr], ctx: LaneContext) -> tirx.Stmt | None:
    """Splits the outermost range by the first of the open ``conds`` that depends on its variable alone, if
    any."""
    nest = replace(nest, closed=not conds)
    var, deeper, written = nest.vars[0], nest.vars[1:], written_buffers(nest.body)
    alone = [cond for cond in conds if is_invariant(cond, deeper, written, ctx, var)]
    points = [(cond, split_point(cond, var)) for cond in alone]
    usable = [(cond, point) for cond, point in points if point is not None]
    if not usable:
        return _emit_loop(nest, ctx)
    if len(usable) > _MOST_CASES:
        return _emit_interior(nest, usable, ctx)
    cond, (bound, holds_below) = usable[0]
    return _emit_segments(nest, cond, bound, holds_below, ctx)


def _emit_interior(
    nest: Nest, points: list[tuple[Expr, tuple[Expr, bool]]], ctx: LaneContext
) -> tirx.Stmt | None:
    """The iterations where all of ``points`` hold, between general code for those before and after."""
    var, start, stop = nest.loops[0]
    dtype = dtype_of(var)
    first, last = start, stop
    for _, (bound, holds_below) in points:
        bound = clamped(bound, start, stop)
        first, last = (first, tirx.min(last, bound)) if holds_below else (tirx.max(first, bound), last)
    names = (tirx.Var(f"{var.name}_first", dtype), tirx.Var(f"{var.name}_last", dtype))
    first = ctx.value(ctx.facts.simplify(tirx.min(first, stop)))
    parts: list[tirx.Stmt | None] = []
    with ctx.scope():
        parts.append(tirx.Bind(ctx.define(names[0], first), first))
        last = ctx.value(ctx.facts.simplify(tirx.max(last, names[0])))
        parts.append(tirx.Bind(ctx.define(names[1], last), last))
        for begin, end, inside in ((start, names[0], False), (*names, True), (names[1], stop, False)):
            part = replace(
                nest, loops=((var, begin, end), *nest.loops[1:]), general=nest.general or not inside
            )
            with ctx.facts.assume(all_of([cond for cond, _ in points]), inside):
                parts.append(_emit_range(*with_open_conditions(part, ctx), ctx))
    return sequence([part for part in parts if part is not None])


def _emit_segments(
    nest: Nest, cond: Expr, bound: Expr, holds_below: bool, ctx: LaneContext
) -> tirx.Stmt | None:
    """The part of the range below ``bound`` and the part from it on, where ``cond`` is decided."""
    var, start, stop = nest.loops[0]
    value = ctx.value(ctx.facts.simplify(clamped(bound, start, stop)))
    if int_value(value) is not None:
        return sequence(_segments(nest, cond, value, holds_below, ctx))
    limit = tirx.Var(f"{var.name}_limit", dtype_of(var))
    with ctx.scope():
        name = ctx.define(limit, value)
        bind = tirx.Bind(name, value)
        _learn_range(name, start, stop, ctx)
        parts = _segments(nest, cond, limit, holds_below, ctx)
    return sequence([bind, *parts]) if parts else None


def _segments(nest: Nest, cond: Expr, limit: Expr, holds_below: bool, ctx: LaneContext) -> list[tirx.Stmt]:
    """The code of both parts, as far as they have any."""
    var, start, stop = nest.loops[0]
    parts = []
    for begin, end, holds in ((start, limit, holds_below), (limit, stop, not holds_below)):
        with ctx.facts.assume(cond, holds):
            part = replace(nest, loops=((var, begin, end), *nest.loops[1:]))
            parts.append(_emit_range(*with_open_conditions(part, ctx), ctx))
    return [part for part in parts if part is not None]


def _learn_range(name: Var, start: Expr, stop: Expr, ctx: LaneContext) -> None:
    """What is known of a limit within a range between two numbers."""
    low, high = int_value(start), int_value(stop)
    if low is not None and high is not None and low <= high:
        ctx.facts.bind_range(name, low, high + 1)


def _emit_loop(nest: Nest, ctx: LaneContext) -> tirx.Stmt | None:
    (var, start, stop), inner = nest.loops[0], nest.loops[1:]
    low, high = ctx.value(start), ctx.value(stop)
    if not inner:
        width = lane_count(nest.body, ctx)
        lanes = partial(emit_lanes, var, low, high, nest.body, width, ctx, noted=not nest.general)
        return emit_streaming(var, low, nest.body, ctx, lanes)
    extent = ctx.facts.analyzer.simplify(high - low)
    if (int_value(extent) or 1) <= 0:
        return None
    with ctx.scope():
        new = ctx.define(var)
        body = emit_nest(replace(nest, loops=inner), ctx)
    return None if body is None else ctx.loop(new, low, extent, body)
