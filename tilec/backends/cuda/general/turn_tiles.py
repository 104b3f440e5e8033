"""Shared operands that are stored across K are turned by a statement of their own, which later passes see."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.threads import rewrite_teams, warps_of
from tilec.backends.cuda.analysis.turn_operands import SHARED, turned
from tilec.backends.cuda.analysis.wgmma import Chooser
from tilec.backends.cuda.limits import has_wgmma
from tilec.backends.cuda.nodes import TurnTile
from tilec.ir.nodes import Alloc, Block, Gemm, Kernel, Launch, Stmt
from tilec.ir.options import AGAINST_WGMMA, NO_ROLES
from tilec.ir.roads import Loss, Road
from tilec.lowering.analysis.roads import road_of, with_roads
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tilec.targets import Target


class TurnTiles(Pass):
    """In: products of wgmma whose shared operands of 8 and 32 bits are stored across K. Out: a TurnTile in
    front of each, into a tile of its own, which the product takes along K: who loads fills the ring of the
    first one, and the second one has versions, as an operand that threads convert has."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its operands along K."""
        against = kernel.option(NO_ROLES)
        if not has_wgmma(target) or against == AGAINST_WGMMA:
            return kernel
        return rewrite_launches(kernel, _turned)


def _turned(launch: Launch) -> Launch:
    chooser = Chooser(launch, None)
    tiles: list[Stmt] = []
    roads: list[Road] = []

    def rewrite(block: Block, warps: int) -> list[Stmt]:
        made: list[Stmt] = []
        for stmt in block:
            wide = isinstance(stmt, Gemm) and not isinstance(chooser.product(stmt, warps), str)
            before, ready = turned(stmt, (SHARED,)) if isinstance(stmt, Gemm) and wide else ([], stmt)
            turns = [part for part in before if isinstance(part, TurnTile)]
            tiles.extend(part for part in before if isinstance(part, Alloc))
            roads.extend(road_of(turn, "threads", "turned in shared memory", _loss(turn)) for turn in turns)
            made += [*turns, ready]
        return made

    body = rewrite_teams(launch.body, warps_of(launch), rewrite)
    return with_roads(replace(launch, body=(*tiles, *body)), roads) if tiles else launch


def _loss(stmt: TurnTile) -> Loss:
    name = stmt.src.buffer.name
    return Loss(
        "", f"{name} is stored across K: it is turned in shared memory first", f"store {name} with K last"
    )
