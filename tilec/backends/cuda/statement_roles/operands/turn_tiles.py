"""Shared operands that are stored across K: lanes bring the first one of a product to registers, others are
turned by a statement of their own, which later passes see."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.blocks.threads import rewrite_teams, warps_of
from tilec.backends.cuda.analysis.layouts.turned_sums import turned_product, with_transposed
from tilec.backends.cuda.analysis.products.turn_operands import SHARED, is_read_across
from tilec.backends.cuda.analysis.products.wgmma import Chooser
from tilec.backends.cuda.idioms.trips.join_trips import joined
from tilec.backends.cuda.limits import has_wgmma
from tilec.backends.cuda.nodes import TurnTile
from tilec.backends.cuda.statement_roles.operands.turn_products import NOTE, can_turn
from tilec.ir.nodes import Alloc, Block, Gemm, Kernel, Launch, Stmt
from tilec.ir.options import AGAINST_WGMMA, NO_ROLES
from tilec.ir.roads import Loss, Road
from tilec.lowering.analysis.roads import road_of, with_notes, with_roads
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tilec.targets import Target


class TurnTiles(Pass):
    """In: products of wgmma whose shared operands of 8 and 32 bits are stored across K. Out: a TurnTile in
    front of each, into a tile of its own, which the product takes along K: who loads fills the ring of the
    first one, and the second one has versions, as an operand that threads convert has. First operands that
    lanes can bring to registers stay; a product of which the second one alone is stored so is computed
    transposed, where nothing but fills, copies and loops over elements touches its sums."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its operands along K."""
        against = kernel.option(NO_ROLES)
        if not has_wgmma(target) or against == AGAINST_WGMMA:
            return kernel
        return rewrite_launches(kernel, lambda launch: _turned(_joined(kernel, _transposed(launch))))


def _joined(kernel: Kernel, launch: Launch) -> Launch:
    """The launch with trips of less than 128 bytes along K joined where lanes bring an operand: a product
    that waits for the one before has more to run beside it."""
    chooser = Chooser(launch, None)
    return joined(kernel, launch, lambda gemm: is_read_across(chooser.turned(gemm)[1]))


def _transposed(launch: Launch) -> Launch:
    """The launch with products whose second operand alone is stored across K as those of which it is the
    first."""
    chooser = Chooser(launch, None)
    found: list[Gemm] = []

    def rewrite(block: Block, warps: int) -> Block:
        products = (stmt for stmt in block if isinstance(stmt, Gemm) and _has_second_across(stmt))
        found.extend(stmt for stmt in products if can_turn(stmt, launch, chooser, warps))
        return block

    rewrite_teams(launch.body, warps_of(launch), rewrite)
    for gemm in found:
        launch = with_transposed(launch, [gemm.c.buffer])
    return with_notes(launch, [NOTE.format(gemm.b.buffer.name) for gemm in found]) if found else launch


def _has_second_across(gemm: Gemm) -> bool:
    """Whether lanes could bring the second operand of a product, and it alone, to registers."""
    turned = turned_product(gemm)
    shared = all(region.buffer.scope() == SHARED for region in (gemm.a, gemm.b))
    return shared and is_read_across(turned) and not gemm.trans_a


def _turned(launch: Launch) -> Launch:
    chooser = Chooser(launch, None)
    tiles: list[Stmt] = []
    roads: list[Road] = []

    def rewrite(block: Block, warps: int) -> list[Stmt]:
        made: list[Stmt] = []
        for stmt in block:
            before, ready = chooser.turned(stmt, (SHARED,)) if chooser.takes(stmt, warps) else ([], stmt)
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
