"""Sums that a trip sets to 0 before their product start from 0 in the product itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import is_whole
from tilec.ir.exprs import int_value, is_zero
from tilec.ir.nodes import Block, Fill, Gemm, Launch, Stmt, children, walk, with_children
from tilec.ir.traits import mentioned
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Var


class ClearInProducts(LaunchPass):
    """In: loops and branches with a Fill of a whole fragment with 0 and, as the next statement that names it,
    a Gemm that adds to all of it. Out: a Gemm that clears. Registers are not written while products that
    other statements have issued are under way."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such products."""
        body = tuple(
            with_children(stmt, [rewrite_blocks(inner, _cleared) for inner in children(stmt)])
            for stmt in launch.body
        )
        return replace(launch, body=body)


def _cleared(block: Block) -> list[Stmt]:
    made = list(block)
    for stmt in block:
        product = _product_on(stmt, made) if isinstance(stmt, Fill) else None
        if product is not None:
            made[made.index(product)] = replace(product, clear=tirx.const(True, "bool"))
            made.remove(stmt)
    return made


def _product_on(fill: Fill, block: list[Stmt]) -> Gemm | None:
    """The product that adds to what a Fill has set to 0; None where it has set something else or another
    statement comes before."""
    tile: Var = fill.dst.buffer
    if not is_zero(fill.value) or tile.scope() != "local.fragment" or not is_whole(fill.dst):
        return None
    behind = block[block.index(fill) + 1 :]
    user = next((stmt for stmt in behind if any(tile in mentioned(inner) for inner in walk((stmt,)))), None)
    if not isinstance(user, Gemm) or not user.c.buffer.same_as(tile) or not is_whole(user.c):
        return None
    operands = (user.a.buffer, user.b.buffer)
    adds = int_value(user.clear) == 0 and not any(tile.same_as(operand) for operand in operands)
    return user if adds else None
