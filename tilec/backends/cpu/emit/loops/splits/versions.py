"""Loops whose choices mostly come out the same: a version without the choice for where it does everywhere.

A mask of attention hides nothing in most blocks of keys. Whether that is so is decided once, at the corner
of the iterations where each condition, linear in their variables, is nearest to failing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cpu.emit.loops.nest import Nest, emit_nest, looked_at
from tilec.backends.cpu.emit.loops.splits.range_splits import is_invariant, written_buffers
from tilec.ir.exprs import all_of, conjuncts, dtype_of, int_value, linear_in, loads, same, substitute, uses
from tilec.ir.nodes import Bind, For, walk
from tilec.lowering.analysis.conditions import gap
from tilec.lowering.emission.statements import branch
from tilec.lowering.rewrite import rename

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tvm import tirx
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.backends.cpu.emit.loops.nest import Look
    from tilec.ir.nodes import Block


def emit_versions(nest: Nest, ctx: LaneContext) -> tirx.Stmt | None:
    """The TIR of a nest, twice where choices in it may all come out the same way."""
    look = looked_at(nest, ctx)
    nest = replace(nest, look=look)
    corners = _corners(nest, look, ctx)
    if not corners:
        return emit_nest(nest, ctx)
    test = ctx.value(all_of([corner for _, corner in corners]))
    with ctx.facts.assume(all_of([cond for cond, _ in corners])):
        then = emit_nest(nest, ctx)
    return branch(test, then, emit_nest(nest, ctx))


def _corners(nest: Nest, look: Look, ctx: LaneContext) -> list[tuple[Expr, Expr]]:
    """The conditions of choices, each with what holds if it does in all iterations, and open ones of loops
    inside, which split no range of the nest; none of either kind where that cannot be told of each."""
    inside = [var for var, _, _ in _loops_inside(nest, ctx)]
    opened = [cond for cond in map(ctx.facts.inline, look.opened) if uses(cond, inside)]
    return [
        found
        for conds in (look.choices, opened)
        for found in corners(_undecided(conds, nest, ctx), nest, ctx) or ()
    ]


def corners(conds: Iterable[Expr], nest: Nest, ctx: LaneContext) -> list[tuple[Expr, Expr]] | None:
    """Conditions, each with what holds if it does in all iterations; None where that cannot be told of
    each."""
    written = written_buffers(nest.body)
    found: list[tuple[Expr, Expr]] = []
    for cond in conds:
        least = _corner(cond, nest, ctx)
        if (
            least is None
            or not is_invariant(least, nest.vars, written, ctx)
            or ctx.facts.prove(least) is False
        ):
            return None
        found.append((cond, least))
    return found


def _undecided(conds: Iterable[Expr], nest: Nest, ctx: LaneContext) -> list[Expr]:
    """The parts of conditions that are not decided and vary over the iterations of a nest, each once."""
    unique: list[Expr] = []
    for choice in conds:
        for cond in conjuncts(ctx.facts.inline(choice)):
            known = any(same(cond, other) for other in unique) or ctx.facts.prove(cond) is not None
            if not known and uses(cond, nest.vars):
                unique.append(cond)
    return unique


def _corner(cond: Expr, nest: Nest, ctx: LaneContext) -> Expr | None:
    """``cond`` at the iteration, and the trips of loops inside, where it is nearest to failing; None where it
    is not linear in integers."""
    positive, loops = gap(cond), [*nest.loops, *_loops_inside(nest, ctx)]
    factors = linear_in(positive, [var for var, _, _ in loops]) if positive is not None else []
    numbers = [number for number in map(int_value, factors[:-1]) if number is not None]
    if positive is None or not factors or len(numbers) != len(loops):
        return None
    ends = {
        var: start if number >= 0 else stop - 1
        for (var, start, stop), number in zip(loops, numbers, strict=True)
    }
    return ctx.facts.simplify(substitute(positive, ends)) > 0


def _loops_inside(nest: Nest, ctx: LaneContext) -> list[tuple[Var, Expr, Expr]]:
    """The loops inside of an iteration whose trips are the same ones in all of them."""
    written = written_buffers(nest.body)
    return [
        (stmt.var, stmt.start, stmt.stop)
        for stmt in walk(nest.body)
        if isinstance(stmt, For) and int_value(stmt.step) == 1
        if all(is_invariant(end, nest.vars, written, ctx) for end in (stmt.start, stmt.stop))
    ]


def without_named_conditions(body: Block) -> Block:
    """``body`` with conditions that have a name, and read nothing, written where they are used."""
    for position, stmt in enumerate(body):
        if isinstance(stmt, Bind) and dtype_of(stmt.var) == "bool" and next(loads(stmt.value), None) is None:
            rest = rename(body[position + 1 :], {stmt.var: stmt.value})
            return (*body[:position], *without_named_conditions(rest))
    return body
