"""Lanes load operands that are stored across K, and places of sparse ones, while the product before is under
way, and make registers of them behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.products.turn_operands import is_read_across
from tilec.backends.cuda.nodes import BringOperand, BringPlaces, SparseWarpgroupProduct, WarpgroupProduct
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tilec.ir.nodes import Block, Launch, Stmt


class BringOperands(LaunchPass):
    """In: WarpgroupProducts that read A across K, and sparse ones. Out: a BringOperand or BringPlaces in
    front of each. A wait that the product needs comes between the two: ptxas serialises products whose
    operands in registers are written beside others. It does not where these are places, which wgmma reads as
    late: an H200 found those of the next trip."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such loads."""
        found: list[str] = []

        def rewrite(block: Block) -> list[Stmt]:
            return [part for stmt in block for part in _brought(stmt, found)]

        return replace(launch, body=rewrite_blocks(launch.body, rewrite))


def _brought(stmt: Stmt, found: list[str]) -> Iterator[Stmt]:
    load = _load(stmt, f"brought_{len(found)}")
    if load is None:
        yield stmt
        return
    found.append(load.registers)
    yield load
    yield replace(stmt, registers=load.registers)  # type: ignore[call-arg]


def _load(stmt: Stmt, name: str) -> BringOperand | BringPlaces | None:
    """What lanes load for a product; None for another one."""
    if isinstance(stmt, SparseWarpgroupProduct):
        return BringPlaces(stmt.e, stmt.trans_e, stmt.tile, name, loc=stmt.loc)
    if isinstance(stmt, WarpgroupProduct) and is_read_across(stmt):
        return BringOperand(stmt.a, stmt.tile, name, loc=stmt.loc)
    return None
