"""Lanes load operands that are stored across K while the product before is under way, and turn them behind
it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.products.turn_operands import is_read_across
from tilec.backends.cuda.nodes import BringOperand, WarpgroupProduct
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tilec.ir.nodes import Block, Launch, Stmt


class BringOperands(LaunchPass):
    """In: WarpgroupProducts that read A across K. Out: a BringOperand in front of each. A wait that the
    product needs comes between the two: ptxas serialises products whose registers are written beside
    others."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such loads."""
        found: list[str] = []

        def rewrite(block: Block) -> list[Stmt]:
            return [part for stmt in block for part in _brought(stmt, found)]

        return replace(launch, body=rewrite_blocks(launch.body, rewrite))


def _brought(stmt: Stmt, found: list[str]) -> Iterator[Stmt]:
    if not isinstance(stmt, WarpgroupProduct) or not is_read_across(stmt):
        yield stmt
        return
    found.append(f"brought_{len(found)}")
    yield BringOperand(stmt.a, stmt.tile, found[-1], loc=stmt.loc)
    yield replace(stmt, registers=found[-1])
