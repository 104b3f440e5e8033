"""Loops whose choices mostly come out the same: a version without the choice for where it does everywhere.

A mask of attention hides nothing in most blocks of keys. Whether that is so is decided once, at the corner
of the iterations where each condition, linear in their variables, is nearest to failing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cpu.emit.loops.nest import Nest, dry_run, emit_nest
from tilec.backends.cpu.emit.loops.range_splits import is_invariant, written_buffers
from tilec.ir.exprs import all_of, conjuncts, dtype_of, int_value, linear_in, loads, same, substitute, uses
from tilec.ir.nodes import Bind
from tilec.lowering.analysis.facts import gap
from tilec.lowering.emission.statements import branch
from tilec.lowering.rewrite import rename

if TYPE_CHECKING:
    from tvm import tirx
    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.ir.nodes import Block


def emit_versions(nest: Nest, ctx: LaneContext) -> tirx.Stmt | None:
    """The TIR of a nest, twice where choices in it may all come out the same way."""
    corners = _corners(nest, ctx)
    if not corners:
        return emit_nest(nest, ctx)
    test = ctx.value(all_of([corner for _, corner in corners]))
    with ctx.facts.assume(all_of([cond for cond, _ in corners])):
        then = emit_nest(nest, ctx)
    return branch(test, then, emit_nest(nest, ctx))


def _corners(nest: Nest, ctx: LaneContext) -> list[tuple[Expr, Expr]]:
    """The conditions of choices, each with what holds if it does in all iterations; none where that cannot be
    told of each."""
    written = written_buffers(nest.body)
    found: list[tuple[Expr, Expr]] = []
    for cond in _conditions(nest, ctx):
        corner = _corner(cond, nest, ctx)
        if corner is None or not is_invariant(corner, nest.vars, written, ctx):
            return []
        found.append((cond, corner))
    return found


def _conditions(nest: Nest, ctx: LaneContext) -> list[Expr]:
    """What the choices of a nest depend on that is not decided and varies over its iterations, each once."""
    unique: list[Expr] = []
    for choice in dry_run(nest, ctx).choices:
        for cond in conjuncts(ctx.facts.inline(choice)):
            known = any(same(cond, other) for other in unique) or ctx.facts.prove(cond) is not None
            if not known and uses(cond, nest.vars):
                unique.append(cond)
    return unique


def _corner(cond: Expr, nest: Nest, ctx: LaneContext) -> Expr | None:
    """``cond`` at the iteration where it is nearest to failing; None where it is not linear in integers."""
    positive = gap(cond)
    factors = linear_in(positive, nest.vars) if positive is not None else []
    numbers = [number for number in map(int_value, factors[:-1]) if number is not None]
    if not factors or len(numbers) != len(nest.vars):
        return None
    ends = {
        var: start if number >= 0 else stop - 1
        for (var, start, stop), number in zip(nest.loops, numbers, strict=True)
    }
    return ctx.facts.simplify(substitute(positive, ends)) > 0


def without_named_conditions(body: Block) -> Block:
    """``body`` with conditions that have a name, and read nothing, written where they are used."""
    for position, stmt in enumerate(body):
        if isinstance(stmt, Bind) and dtype_of(stmt.var) == "bool" and next(loads(stmt.value), None) is None:
            rest = rename(body[position + 1 :], {stmt.var: stmt.value})
            return (*body[:position], *without_named_conditions(rest))
    return body
