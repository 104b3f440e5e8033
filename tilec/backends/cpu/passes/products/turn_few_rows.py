"""Few rows times a matrix with K side by side are done the other way round by a matrix unit, which reads that
matrix as it lies; the few rows are brought into words in its place.

Instructions on vectors would fill their lanes with the few rows. They have theirs along K, which wastes less.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tilec.backends.cpu.passes.products.select_microkernel import register_block
from tilec.backends.cpu.products.forms.tile_forms import TILE, TileForm
from tilec.backends.cpu.products.forms.word_forms import word_forms
from tilec.backends.cpu.products.turned_tiles import holds_turnable, with_turned
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Gemm, Kernel, Launch, walk
from tilec.lowering.analysis.regions import is_whole
from tilec.lowering.analysis.uses import users
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target

#: Rows of the product up to which its other operand is too much to bring into another form.
_FEW_ROWS = 2 * TILE


class TurnFewRows(Pass):
    """In: ``Gemm`` with both K side by side into tiles of few rows, which elementwise work alone reads. Out:
    where the target has a matrix unit for it, the transposed product into a transposed tile."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with such products turned."""
        return rewrite_launches(kernel, lambda launch: _turned(launch, target))


def _turned(launch: Launch, target: Target) -> Launch:
    used = users(launch.body)
    allocated = (stmt.buffer for stmt in walk(launch.body) if isinstance(stmt, Alloc))
    for tile in [tile for tile in allocated if len(tile.shape) == 2]:
        if holds_turnable(tile, used.get(tile, []), partial(_is_low, tile=tile, target=target)):
            launch = replace(launch, body=with_turned(launch.body, tile))
    return launch


def _is_low(gemm: Gemm, tile: Var, target: Target) -> bool:
    """Whether ``gemm`` adds few rows to all of ``tile``, by a matrix unit that takes it turned."""
    rows, columns, depth = (int_value(extent) for extent in (*gemm.c.extent[-2:], gemm.a.extent[-1]))
    if not gemm.c.buffer.same_as(tile) or not is_whole(gemm.c) or gemm.trans_a or not gemm.trans_b:
        return False
    if rows is None or columns is None or depth is None or not rows <= _FEW_ROWS < columns:
        return False
    block = register_block(target, str(tile.dtype))
    forms = word_forms(target, *(str(region.buffer.dtype) for region in (gemm.b, gemm.a, gemm.c)))
    return any(
        isinstance(form, TileForm) and form.block(block, columns, depth, rows) is not None for form in forms
    )
