"""Branches around loops over elements are choices of the values that these store.

if n < gates: C[i, j] = silu(C[i, j])              C[i, j] = if_then_else(n < gates, silu(C[i, j]),
else:         C[i, j] = C[i, j] + bias[j]    ->                           C[i, j] + bias[j])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.gathers import only_store
from tilec.ir.exprs import int_value, loads, same_all, substitute
from tilec.ir.nodes import Block, If, Launch, Parallel, Pipelined, Stmt, Store
from tilec.lowering.analysis.accesses import element_of
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr

_NOTE = "a branch behind its loop chooses values of {}"


class ChooseValues(LaunchPass):
    """In: behind a pipelined loop, branches on what no memory decides, with loops over elements of a fragment
    alone: one on either side, which store to the same elements, or any number on one side. Out: loops that
    store what either side gives; elements that a side leaves keep their value."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with a note for each branch."""
        notes: list[str] = []
        body = rewrite_blocks(launch.body, lambda block: _chosen(block, notes))
        return with_notes(replace(launch, body=body), notes) if notes else launch


def _chosen(block: Block, notes: list[str]) -> Sequence[Stmt]:
    at = next((place for place, stmt in enumerate(block) if isinstance(stmt, Pipelined)), len(block))
    made: list[Stmt] = list(block[: at + 1])
    for stmt in block[at + 1 :]:
        loops = _loops(stmt) if isinstance(stmt, If) else None
        made += [stmt] if loops is None else loops
        notes += [_NOTE.format(only_store(loop).buffer.name) for loop in loops or []]
    return made


def _loops(branch: If) -> list[Parallel] | None:
    """The loops of both sides as loops of choices; None where they are none."""
    sides = [*branch.then, *branch.orelse]
    if any(True for _ in loads(branch.cond)) or not sides or not all(map(_is_plain, sides)):
        return None
    then, orelse = (
        [loop for loop in side if isinstance(loop, Parallel)] for side in (branch.then, branch.orelse)
    )
    if not orelse or not then:
        holds = branch.cond if then else tirx.Not(branch.cond)
        return [_with_value(loop, holds, only_store(loop).value, _kept(loop)) for loop in then or orelse]
    if len(then) != 1 or len(orelse) != 1:
        return None
    other = _over(orelse[0], then[0])
    if other is None:
        return None
    return [_with_value(then[0], branch.cond, only_store(then[0]).value, other)]


def _is_plain(stmt: Stmt) -> bool:
    """Whether a statement stores one element of a fragment in each trip, and does nothing else."""
    if not isinstance(stmt, Parallel) or len(stmt.body) != 1:
        return False
    only = stmt.body[0]
    return isinstance(only, Store) and only.buffer.scope() == "local.fragment"


def _kept(loop: Parallel) -> Expr:
    """What an element holds."""
    return element_of(only_store(loop))


def _over(loop: Parallel, other: Parallel) -> Expr | None:
    """The value of a loop over the variables of another one; None where that stores to other elements."""
    extents = [[int_value(extent) for extent in each.extents] for each in (loop, other)]
    if extents[0] != extents[1] or None in extents[0]:
        return None
    names = dict(zip(loop.vars, other.vars, strict=True))
    indices = tuple(substitute(index, names) for index in only_store(loop).indices)
    same = only_store(loop).buffer.same_as(only_store(other).buffer) and same_all(
        indices, tuple(only_store(other).indices)
    )
    return substitute(only_store(loop).value, names) if same else None


def _with_value(loop: Parallel, holds: Expr, value: Expr, other: Expr) -> Parallel:
    store = only_store(loop)
    return replace(loop, body=(replace(store, value=tirx.if_then_else(holds, value, other)),))
