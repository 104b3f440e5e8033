"""Loops that do nothing but repeat a loop of loads and products are one loop with it.

for tap: for k: C += X[tap, k] W[tap, k]    ->    for t: tap, k = t // K, t % K; C += X[tap, k] W[tap, k]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from tvm import sym, tirx

from tilec.ir.exprs import dtype_of, inlined, int_value, loads, uses
from tilec.ir.nodes import Bind, Block, For, Gemm, Launch, Pipelined, Stmt, children, with_children
from tilec.lowering.analysis.accesses import computed_values_of
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.passes.base import LaunchPass
from tilec.lowering.rewrite import rename

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_Loop: TypeAlias = "For | Pipelined"
_NOTE = "its loops over {} are one"


class JoinNests(LaunchPass):
    """In: serial loops around nothing but a pipelined loop of products, and names, where no loop decides how
    many trips another one has. Out: a pipelined loop over the trips of all."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with a note for each nest."""
        notes: list[str] = []
        body = _block(launch.body, {}, notes)
        return with_notes(replace(launch, body=body), notes) if notes else launch


def _block(block: Block, names: dict[Var, Expr], notes: list[str]) -> Block:
    """A block with its nests joined; ``names``: those for values around it."""
    names = {**names, **computed_values_of(block)}
    made: list[Stmt] = []
    for stmt in block:
        nest = _nest(stmt, names)
        if nest is None:
            made.append(with_children(stmt, [_block(inner, names, notes) for inner in children(stmt)]))
            continue
        loops, binds, inner = nest
        notes.append(_NOTE.format(", ".join(_names((*loops, inner)))))
        made.append(_joined(loops, binds, inner))
    return tuple(made)


def _names(loops: Sequence[_Loop]) -> list[str]:
    return [str(loop.var.name) for loop in loops]


def _nest(stmt: Stmt, names: dict[Var, Expr]) -> tuple[list[For], list[Stmt], Pipelined] | None:
    """The loops around a pipelined one from the outermost on, the names between them and that loop; None for
    other statements."""
    loops: list[For] = []
    binds: list[Stmt] = []
    while isinstance(stmt, For) and stmt.kind == "serial" and int_value(stmt.step) == 1:
        loops.append(stmt)
        *own, stmt = stmt.body
        binds += own
    if not loops or not isinstance(stmt, Pipelined) or not all(map(_is_plain, binds)):
        return None
    multiplies = any(isinstance(inner, Gemm) for inner in stmt.body)
    every: list[_Loop] = [*loops, stmt]
    kinds = {dtype_of(loop.var) for loop in every}
    own_names = {loop.var for loop in loops} | {bind.var for bind in binds if isinstance(bind, Bind)}
    ends = [inlined(end, names) for loop in every for end in (loop.start, loop.stop)]
    steady = not any(uses(end, own_names) or any(True for _ in loads(end)) for end in ends)
    return (loops, binds, stmt) if multiplies and steady and len(kinds) == 1 else None


def _joined(loops: Sequence[For], binds: Sequence[Stmt], inner: Pipelined) -> Pipelined:
    """One loop over all trips. Where a loop has none there is no trip, and nothing is divided by it."""
    simplify = sym.Analyzer().simplify
    first, *others = loops
    within: list[_Loop] = [*others, inner]
    trip = tirx.Var("_".join(_names((*loops, inner))), dtype_of(inner.var))
    values: dict[Var, Expr] = {}
    rest: Expr = trip
    for loop in reversed(within):
        count = simplify(loop.stop - loop.start)
        values[loop.var] = simplify(loop.start + tirx.floormod(rest, count))
        rest = tirx.floordiv(rest, count)
    values[first.var] = simplify(first.start + rest)
    stop = tirx.max(first.stop - first.start, tirx.const(0, dtype_of(trip)))
    for loop in within:
        stop = stop * tirx.max(loop.stop - loop.start, tirx.const(0, dtype_of(trip)))
    zero = tirx.const(0, dtype_of(trip))
    body = rename((*binds, *inner.body), values)
    return replace(inner, var=trip, start=zero, stop=simplify(stop), body=body)


def _is_plain(stmt: Stmt) -> bool:
    """Whether a statement is a name of a value that no memory decides."""
    return isinstance(stmt, Bind) and not any(True for _ in loads(stmt.value))
