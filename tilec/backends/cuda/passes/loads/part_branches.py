"""Loads of a branch in a pipelined loop stand in front of it, so that they can run ahead like others.

if picked[k]: load; product    ->    if picked[k]: load
                                     if picked[k]: product
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.pipelines.loads_ahead import load_of
from tilec.backends.cuda.analysis.pipelines.rewrite import is_told
from tilec.ir.exprs import all_of, inlined
from tilec.ir.nodes import Block, If, Launch, Pipelined, Stmt
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.uses import used_in, with_overlapping, written_in
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks
from tilec.lowering.rewrite import rename

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr, Var


class PartBranches(LaunchPass):
    """In: Pipelined loops. Out: in those of two stages or more, each load of a branch (without an other side)
    stands in front of it under the same condition, where a trip ahead can tell the condition and the load's
    place: they depend on nothing that the loop changes."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its branches parted."""

        def parted(block: Block) -> list[Stmt]:
            return [_parted(stmt, launch) if isinstance(stmt, Pipelined) else stmt for stmt in block]

        return replace(launch, body=rewrite_blocks(launch.body, parted))


def _parted(loop: Pipelined, launch: Launch) -> Pipelined:
    if loop.num_stages < 2 or not any(isinstance(stmt, If) for stmt in loop.body):
        return loop
    mutable = with_overlapping(written_in(loop.body), launch)

    def told(exprs: tuple[Expr, ...], own: tuple[Var, ...]) -> bool:
        return is_told(exprs, own, loop, launch, mutable)

    def parted(branch: If, values: Mapping[Var, Expr], conds: tuple[Expr, ...]) -> tuple[Block, Block]:
        """The loads of a branch, inside of others on ``conds``, that may stand in front, and what is left."""
        cond = inlined(branch.cond, values)
        if branch.orelse or not told((cond,), ()):
            return (), (branch,)
        values = {**values, **values_of(branch.then)}
        front: list[Stmt] = []
        rest: list[Stmt] = []
        for stmt in branch.then:
            made, kept = of(stmt, values, (*conds, cond))
            free = not written_in(made) & used_in(tuple(rest))
            front += made if free else ()
            rest += kept if free else (stmt,)
        return tuple(front), (replace(branch, then=tuple(rest)),) if rest else ()

    def of(stmt: Stmt, values: Mapping[Var, Expr], conds: tuple[Expr, ...]) -> tuple[Block, Block]:
        if isinstance(stmt, If):
            return parted(stmt, values, conds)
        (moved,) = rename((stmt,), {var: inlined(value, values) for var, value in values.items()})
        load = load_of(moved)
        if load is None or load.source in mutable or not told(load.places, load.vars):
            return (), (stmt,)
        return (If(all_of(list(conds)), (moved,), loc=stmt.loc),), ()

    body = (sum(parted(stmt, {}, ()), ()) if isinstance(stmt, If) else (stmt,) for stmt in loop.body)
    return replace(loop, body=tuple(made for block in body for made in block))
