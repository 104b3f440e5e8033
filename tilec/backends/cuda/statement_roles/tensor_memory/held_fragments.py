"""Which fragments of a launch lie in tensor memory, where there, and which tiles its products read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.analysis.products.tensor_memory import (
    MOST,
    handed_out,
    held_tile,
    is_held,
    taken_columns,
    tensor_tile,
)
from tilec.backends.cuda.nodes import BoxLoad, GiveBack, TensorTile
from tilec.backends.cuda.warp_roles.unfit import Unfit, need
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Block, Gemm, Launch, Stmt, children, walk
from tilec.ir.nodes.barriers import Arrive, Group, WaitPhase
from tilec.ir.traits import written
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target


class HeldFragments:
    """Of a launch whose threads of ``group`` multiply. Unfit where tcgen05 does not serve all its products.

    ``operands``: the shared tiles that products read; ``tiles``: how each product lies in tensor memory;
    ``fragments``: what lies there, and how; ``columns``: the first one of each, of ``total``; ``full``: the
    tiles that are there when those who wait for a barrier go on; ``by_threads``: barriers at which threads
    arrive that have written some."""

    def __init__(self, launch: Launch, group: Group, target: Target) -> None:
        self._group, self._target = group, target
        products = [stmt for stmt in walk(launch.body) if isinstance(stmt, Gemm)]
        held = {stmt.a.buffer for stmt in products if is_held(stmt)}
        self.operands = {region.buffer for stmt in products for region in (stmt.a, stmt.b)} - held
        _check_orders(launch, self.operands)
        self.tiles = {stmt: self._tile(stmt) for stmt in products}
        self.fragments = self._fragments(products)
        self.columns = self._columns()
        self.staged = {
            tile for stmt in walk(launch.body) if isinstance(stmt, GiveBack) for tile in stmt.tiles
        }
        self.full: dict[Var, set[Var]] = {}
        self.by_threads: set[Var] = set()
        for stmt in launch.body:
            if stmt is not group:
                self._learn((stmt,))

    def are_operands(self, tiles: Iterable[Var], stmt: Stmt) -> bool:
        """Whether products read the tiles of a stage; Unfit where threads read some of them."""
        found = {tile in self.operands for tile in tiles}
        need(len(found) < 2, "threads read a stage, too", stmt)
        return found == {True}

    def _learn(self, block: Block) -> None:
        """Which tiles are there when those who wait for a barrier go on, and at which barriers threads arrive
        that have written some since they waited."""
        filled: set[Var] = set()
        for stmt in block:
            for inner in children(stmt):
                self._learn(inner)
            if isinstance(stmt, BoxLoad):
                self.full.setdefault(stmt.barrier, set()).add(stmt.dst.buffer)
            elif isinstance(stmt, WaitPhase):
                filled = set()
            elif isinstance(stmt, Arrive):
                self.full.setdefault(stmt.barrier, set()).update(filled)
                self.by_threads |= {stmt.barrier} if filled else set()
            else:
                filled |= {tile for inner in walk((stmt,)) for tile in written(inner)} & self.staged

    def _tile(self, product: Gemm) -> TensorTile:
        found = tensor_tile(product, self._group.count // WARP, self._target)
        if isinstance(found, str):
            raise Unfit(found, product)
        need(int_value(product.clear) is not None, "it may clear its sums itself", product)
        return found

    def _fragments(self, products: Sequence[Gemm]) -> dict[Var, TensorTile]:
        """What lies in tensor memory, and how: sums, and first operands behind them."""
        found: dict[Var, TensorTile] = {}
        own = [(product.c.buffer, self.tiles[product]) for product in products]
        own += [(stmt.a.buffer, held_tile(self.tiles[stmt])) for stmt in products if is_held(stmt)]
        for fragment, tile in own:
            known = found.setdefault(fragment, tile)
            same = (known.warps, known.tiles, known.columns) == (tile.warps, tile.tiles, tile.columns)
            need(same, f"products use {fragment.name} in two ways")
        return found

    def _columns(self) -> dict[Var, int]:
        """The first column of each fragment."""
        places: dict[Var, int] = {}
        at = 0
        for fragment, tile in self.fragments.items():
            places[fragment] = at
            at += taken_columns(tile, element_bytes(str(fragment.dtype)))
        need(0 < at <= MOST, f"tensor memory has no {at} columns")
        self.total = handed_out(at)
        return places


def _check_orders(launch: Launch, operands: set[Var]) -> None:
    """Unfit where an author gives an operand another order than descriptors say."""
    for stmt in walk(launch.body):
        asked = isinstance(stmt, Alloc) and stmt.buffer in operands and stmt.asked is not None
        need(not asked, "T.annotate_layout orders an operand", stmt)
