"""What a condition on elements reads of tensors gets a name in front of the loop of products.

if i < counts[g]: C[i, j] = ...    ->    bound = counts[g]; ...; if i < bound: C[i, j] = ...
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.ir.exprs import dtype_of, loads, same, transform, uses
from tilec.ir.nodes import Bind, Block, If, Launch, Parallel, Pipelined, Stmt
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.uses import written_in
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_NOTE = "what conditions read of {} is read in front of its loop"


class NameBounds(LaunchPass):
    """In: blocks with a pipelined loop, and behind it loops over elements under one condition that reads
    elements of tensors which the launch does not write, the same ones in every trip. Out: names for these in
    front of the pipelined loop."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such names."""
        notes: dict[str, None] = {}
        written = written_in(launch.body)
        body = rewrite_blocks(launch.body, lambda block: _named(block, written, notes))
        return with_notes(replace(launch, body=body), list(notes)) if notes else launch


def _named(block: Block, written: set[Var], notes: dict[str, None]) -> Block:
    at = next((place for place, stmt in enumerate(block) if isinstance(stmt, Pipelined)), None)
    if at is None:
        return block
    late = [stmt.var for stmt in block[at:] if isinstance(stmt, Bind)]
    names: list[tuple[TensorLoad, Var]] = []
    behind = [_with_names(stmt, names, written, late) for stmt in block[at:]]
    notes.update((_NOTE.format(load.source.name), None) for load, _ in names)
    return (*block[:at], *(Bind(var, load) for load, var in names), *behind)


def _with_names(stmt: Stmt, names: list[tuple[TensorLoad, Var]], written: set[Var], late: list[Var]) -> Stmt:
    """A loop whose condition reads names, which are added to those there are."""
    only = stmt.body[0] if isinstance(stmt, Parallel) and len(stmt.body) == 1 else None
    if not isinstance(stmt, Parallel) or not isinstance(only, If):
        return stmt
    inner = (*stmt.vars, *late)

    def visit(node: Expr) -> Expr | None:
        if not _is_fixed(node, inner, written):
            return None
        known = next((var for load, var in names if same(load, node)), None)
        if known is None:
            known = tirx.Var(f"{node.source.name}_bound", dtype_of(node))
            names.append((node, known))
        return known

    return replace(stmt, body=(replace(only, cond=transform(only.cond, visit)),))


def _is_fixed(node: Expr, inner: tuple[Var, ...], written: set[Var]) -> bool:
    """Whether an expression is an element of a tensor that stays the same, and is known in front."""
    if not isinstance(node, TensorLoad) or node.source.scope() != "global" or node.source in written:
        return False
    return not uses(node, inner) and not any(True for index in node.indices for _ in loads(index))
