"""Products of one first operand are issued as one with the columns of all of them.

    gate += A G; up += A U    ->    (gate, up) += A (G, U)

An instruction reads its rows of the first operand from shared memory, however many columns it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.analysis.products.wgmma import WIDEST
from tilec.backends.cuda.matmul.nodes import MatmulRoles, RingDrain, WarpgroupGemm
from tilec.backends.cuda.nodes import SideBySide
from tilec.backends.cuda.warp_roles.ring import GROUP_ROWS
from tilec.backends.cuda.warp_roles.strategy import rewrite_roles, with_roles
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.nodes import Block, Kernel, Stmt
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target


class IssueWide(Pass):
    """In: MatmulRoles with WarpgroupGemms directly behind each other in its RingDrain. Out: those of one
    first operand, whose second ones may lie behind each other in a stage as columns of one, in a SideBySide
    of as many columns as an instruction holds."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with wide products."""
        return rewrite_roles(
            kernel, MatmulRoles, lambda launch, roles: with_roles(launch, _with_wide_products(roles))
        )


def _with_wide_products(roles: MatmulRoles) -> MatmulRoles:
    consumer = (
        replace(stmt, body=_grouped(stmt.body)) if isinstance(stmt, RingDrain) else stmt
        for stmt in roles.consumer
    )
    return replace(roles, consumer=tuple(consumer))


def _grouped(block: Block) -> Block:
    uses = Counter(
        buffer
        for stmt in block
        if isinstance(stmt, WarpgroupGemm)
        for buffer in (stmt.b.buffer, stmt.c.buffer)
    )
    made: list[Stmt] = []
    for stmt in block:
        last = made[-1] if made else None
        run = () if last is None else wide_product(last)
        if isinstance(stmt, WarpgroupGemm) and _follows(run, stmt, uses):
            made[-1] = SideBySide((*run, stmt), loc=run[0].loc)
            continue
        made.append(stmt)
    return tuple(made)


def _follows(run: Sequence[WarpgroupGemm], stmt: WarpgroupGemm, uses: Counter[Var]) -> bool:
    """Whether an instruction of the products of ``run`` may have the columns of one more."""
    if not run or stmt.tile.columns * (len(run) + 1) > WIDEST:
        return False
    own = all(uses[buffer] == 1 for each in (*run, stmt) for buffer in (each.b.buffer, each.c.buffer))
    return own and _is_whole(stmt) and _form(run[-1]) == _form(stmt)


def _form(stmt: WarpgroupGemm) -> tuple[object, ...]:
    """What products of one instruction have in common."""
    b, tile = stmt.b.buffer, stmt.tile
    instruction = tile.rows, tile.columns, tile.steps, tile.types
    return stmt.a.buffer, stmt.trans_a, stmt.trans_b, static_extents(b), *instruction


def _is_whole(stmt: WarpgroupGemm) -> bool:
    """Whether a product sums floats, and its second operand fills its place in a stage but for nothing: rows
    of one slab, or whole slabs of columns."""
    tile = stmt.b.buffer
    _, rows, columns = static_extents(tile)
    row, wide = columns * element_bytes(str(tile.dtype)), stmt.tile.columns
    if str(stmt.c.buffer.dtype) != "float32":
        return False
    if stmt.trans_b:
        return row == ROW_BYTES and rows == wide and rows % GROUP_ROWS == 0
    return columns == wide and row % ROW_BYTES == 0


def wide_product(stmt: Stmt) -> tuple[WarpgroupGemm, ...]:
    """The products that a statement of a drain issues as one; nothing for others."""
    block = stmt.body if isinstance(stmt, SideBySide) else (stmt,)
    return tuple(each for each in block if isinstance(each, WarpgroupGemm))
