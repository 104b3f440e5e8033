"""Products with few columns are done the other way round: vectors along the columns would be filled by few
numbers, those along K, which the first operand has side by side, are full.

A tile (M, K) times one of (K, 8) becomes the product of (8, K) and (K, M): `across_tile` reads the rows of
the first operand where they lie, as those of a weight that few rows of activations meet.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tilec.backends.cpu.passes.products.select_microkernel import register_block
from tilec.backends.cpu.products.forms.tile_forms import TileForm
from tilec.backends.cpu.products.forms.word_forms import word_forms
from tilec.backends.cpu.products.turned_tiles import holds_turnable, is_elementwise, with_turned
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Gemm, Kernel, Launch, Stmt, walk
from tilec.lowering.analysis.regions import is_whole
from tilec.lowering.analysis.uses import users
from tilec.lowering.emission.storage import compute_type
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Var

    from tilec.targets import Target


#: Columns of a tile up to which vectors along K gain with 16 lanes as well: on Zen 5 eight took 0.6 of the
#: time of half vectors along columns.
_FEW_COLUMNS = 8


class TurnFewColumns(Pass):
    """In: ``Gemm`` of floats with K side by side in the first operand, into tiles of at most eight columns
    and no more than a vector has, on which other work is elementwise. Out: the transposed products into
    transposed tiles; second operands that are stored (K, N) lie the other way round, where their work is
    elementwise, too. Targets with a matrix unit for the types leave such products alone."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with such products turned."""
        return rewrite_launches(kernel, lambda launch: _Turner(launch, target).result())


class _Turner:
    """Rewrites one launch. ``used`` are the statements that name each tile, ``tiles`` those of two axes."""

    def __init__(self, launch: Launch, target: Target) -> None:
        self.launch = launch
        self.target = target
        self.used: Mapping[Var, list[Stmt]] = users(launch.body)
        allocated = (stmt.buffer for stmt in walk(launch.body) if isinstance(stmt, Alloc))
        self.tiles = [tile for tile in allocated if len(tile.shape) == 2]

    def result(self) -> Launch:
        """The launch with narrow products turned."""
        body, done = self.launch.body, set[Gemm]()
        for tile in self.tiles:
            used = self.used.get(tile, [])
            if not holds_turnable(tile, used, partial(self._is_narrow, tile=tile)):
                continue
            products = [user for user in used if isinstance(user, Gemm)]
            turned = self._operands(products)
            if turned is None or done.intersection(products):
                continue
            done.update(products)
            for other in (tile, *turned):
                body = with_turned(body, other)
        return replace(self.launch, body=body)

    def _is_narrow(self, gemm: Gemm, tile: Var) -> bool:
        """Whether ``gemm`` adds to all of ``tile`` few columns of sums of floats, over a K of as many vectors
        as these are: the lanes of each sum are added up behind it. Where it is open whether it clears them,
        its other operand is not read in place."""
        if not gemm.c.buffer.same_as(tile) or not is_whole(gemm.c):
            return False
        if gemm.trans_a or int_value(gemm.clear) is None:
            return False
        types = [str(region.buffer.dtype) for region in (gemm.a, gemm.b, gemm.c)]
        floats = types[2] == "float32" and all(compute_type(dtype) == "float32" for dtype in types)
        if not floats or any(isinstance(form, TileForm) for form in word_forms(self.target, *types)):
            return False
        lanes = register_block(self.target, "float32").lanes
        rows, columns, depth = (int_value(extent) for extent in (*gemm.c.extent[-2:], gemm.a.extent[-1]))
        if rows is None or columns is None or depth is None:
            return False
        return columns <= min(lanes, _FEW_COLUMNS) and columns < rows and columns * lanes <= depth

    def _operands(self, products: list[Gemm]) -> list[Var] | None:
        """The second operands that have to be turned as well; None where one of them cannot be."""
        stored = {gemm.b.buffer for gemm in products if not gemm.trans_b}
        turned = [tile for tile in self.tiles if tile in stored]
        can = len(turned) == len(stored) and all(self._is_own(tile, products) for tile in turned)
        return turned if can else None

    def _is_own(self, tile: Var, products: list[Gemm]) -> bool:
        """Whether ``tile`` is the second operand of ``products``, and else filled element by element."""
        for user in self.used[tile]:
            if isinstance(user, Gemm):
                if user not in products or user.a.buffer.same_as(tile) or user.trans_b:
                    return False
            elif not is_elementwise(user, tile):
                return False
        return True
