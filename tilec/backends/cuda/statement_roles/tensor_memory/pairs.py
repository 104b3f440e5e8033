"""Which launches two neighbouring blocks may carry out together, one product of tcgen05 for both.

PTX ISA, "tcgen05.mma" with .cta_group::2: each block of a pair has its rows of the first operand in shared
memory and half of the columns of the second one, and its rows of sums in tensor memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.vectors import divides
from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.analysis.products.tensor_memory import PAIR, PAIRED_COLUMNS
from tilec.backends.cuda.analysis.products.wgmma import is_operand
from tilec.backends.cuda.nodes import ArriveOnce, BoxLoad, TensorCommit, TensorProduct, TensorSums
from tilec.backends.cuda.passes.threads.open_barriers import in_clusters
from tilec.backends.cuda.statement_roles.tensor_memory.whole_sums import whole_loops
from tilec.backends.cuda.warp_roles.tma import TENSORS
from tilec.backends.cuda.warp_roles.unfit import need
from tilec.ir.exprs import int_value, loads
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.nodes import Alloc, Bind, Block, Break, Continue, For, Launch, Region, Stmt, children, walk
from tilec.ir.nodes.barriers import WaitPhase
from tilec.ir.traits import buffers, expressions, loads_of, written
from tilec.lowering.analysis.uses import changed_in

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.lowering.analysis.facts import Facts

#: What blocks of a pair come to together.
_TOGETHER = (ArriveOnce, BoxLoad, TensorCommit, TensorProduct, WaitPhase)


def pair_axis(launch: Launch, asked: tuple[int, ...]) -> int:
    """The axis of the grid along which clusters that are ``asked`` for are pairs. Unfit for others."""
    axes = [axis for axis, size in enumerate(asked) if size == PAIR]
    fits = len(axes) == 1 and set(asked) <= {1, PAIR} and axes[0] < len(launch.grid)
    need(fits, f"clusters of {' x '.join(map(str, asked))} are no pairs along one axis of the grid")
    return axes[0]


class Pairs:
    """The pairs along ``axis`` of a launch whose sums lie in tensor memory. ``sides``: by tile of a second
    operand the axis of its columns, from the end; ``halves``: what a block has of it; ``is_even``: whether
    the grid is known to have whole pairs. Unfit where there are none."""

    def __init__(self, launch: Launch, axis: int, facts: Facts) -> None:
        self.launch, self.axis, self.var = launch, axis, launch.block_vars[axis]
        whole_loops(launch)
        stmts = list(walk(launch.body))
        self._values: dict[Var, tuple[Expr, ...]] = {
            stmt.var: (stmt.value,) for stmt in stmts if isinstance(stmt, Bind)
        }
        self._values |= {stmt.var: (stmt.start, stmt.stop) for stmt in stmts if isinstance(stmt, For)}
        self._own = {stmt.buffer for stmt in stmts if isinstance(stmt, Alloc)} | changed_in(launch)
        products = [stmt for stmt in stmts if isinstance(stmt, TensorProduct)]
        self.loads = [stmt for stmt in stmts if isinstance(stmt, BoxLoad)]
        self.sides = _sides(products)
        self.halves = {tile: _half(tile, side) for tile, side in self.sides.items()}
        self.is_even = divides(PAIR, launch.grid[axis], facts)
        need(not in_clusters(launch), "its author orders the blocks of clusters")
        self._check_products(products)
        self._check_control(stmts)
        for load in self.loads:
            if load.dst.buffer in self.halves:
                self._check_half(load)

    def part(self, region: Region) -> Region:
        """Of a stage of a second operand what a block has."""
        tile = self.halves[region.buffer]
        return Region(tile, region.start, (*region.extent[:-2], *static_extents(tile)[-2:]))

    def split(self, block: Block) -> tuple[Block, Block]:
        """A block up to its last sums, and what is behind. Unfit where a second block, outside of the grid,
        would do something in front that it must not."""
        sums = [place for place, stmt in enumerate(block) if _has_sums(stmt)]
        end = sums[-1] + 1 if sums else len(block)
        for stmt in walk(block[:end]):
            stores = any(buffer.scope() in TENSORS for buffer in written(stmt))
            need(not stores, "it stores in front of its last products", stmt)
            found = list(loads_of(stmt))
            there = not any(load.source.scope() in TENSORS and self._differs(load) for load in found)
            need(there, "a block outside of the grid would look up what is not there", stmt)
        return block[:end], block[end:]

    def _check_products(self, products: Sequence[TensorProduct]) -> None:
        for product in products:
            columns, tile = product.tile.columns, product.b.buffer
            need(
                columns % PAIRED_COLUMNS == 0,
                f"{columns} columns are no multiple of {PAIRED_COLUMNS}",
                product,
            )
            need(product.a.buffer not in self.halves, "a tile is first and second operand", product)
            described = is_operand(self.part(product.b), not product.trans_b)
            need(described, f"half of {tile.name} is no tile that descriptors describe", product)

    def _check_control(self, stmts: Sequence[Stmt]) -> None:
        """Unfit where blocks of a pair may have different trips or branches."""
        for stmt in stmts:
            need(not isinstance(stmt, (Break, Continue)), "a loop is left early", stmt)
            meets = any(isinstance(inner, _TOGETHER) for block in children(stmt) for inner in walk(block))
            alike = not meets or not any(map(self._differs, expressions(stmt)))
            need(alike, f"trips or branches change along {self.var.name}", stmt)
            other = not isinstance(stmt, (Alloc, BoxLoad, TensorProduct, TensorCommit))
            used = other and not self.halves.keys().isdisjoint(buffers(stmt))
            need(not used, "a second operand has other uses", stmt)

    def _check_half(self, load: BoxLoad) -> None:
        """Unfit for a load of a second operand that differs between blocks, or that comes in parts."""
        tile = load.dst.buffer
        need(
            not any(map(self._differs, load.src.start)),
            f"{tile.name} changes along {self.var.name}, which blocks of a pair share",
            load,
            remedy="ask for pairs along the axis along which second operands stay the same",
        )
        need(_are(load.dst.extent[1:], static_extents(tile)[1:]), f"{tile.name} comes in parts", load)
        need(len(wide_axes(load.src)) == 2, f"{load.src.buffer.name} gives {tile.name} no matrix", load)

    def _differs(self, expr: Expr) -> bool:
        """Whether a value may differ between the blocks of a pair."""
        met: set[Var] = set()
        work = [expr]
        while work:
            value = work.pop()
            names = {node for node in walk_expr(value) if isinstance(node, tirx.Var)}
            names |= {load.source for load in loads(value)}
            if self.var in names or names & self._own:
                return True
            work += [each for name in names - met for each in self._values.get(name, ())]
            met |= names
        return False


def wide_axes(region: Region) -> list[int]:
    """The axes along which a box has several elements."""
    return [axis for axis, extent in enumerate(region.extent) if int_value(extent) != 1]


def _has_sums(stmt: Stmt) -> bool:
    return any(isinstance(inner, TensorSums) for inner in walk((stmt,)))


def _sides(products: Sequence[TensorProduct]) -> dict[Var, int]:
    sides: dict[Var, int] = {}
    for product in products:
        tile, side = product.b.buffer, -2 if product.trans_b else -1
        need(sides.setdefault(tile, side) == side, f"{tile.name} is a second operand both ways", product)
        whole = _are(product.b.extent[-2:], static_extents(tile)[-2:])
        need(whole, f"{tile.name} is multiplied in parts", product)
    return sides


def _half(tile: Var, side: int) -> Var:
    shape = list(static_extents(tile))
    shape[side] //= PAIR
    return tirx.decl_buffer(shape, str(tile.dtype), name=str(tile.name), scope="shared.dyn")


def _are(extents: Sequence[int | Expr], sizes: Sequence[int]) -> bool:
    return [*map(int_value, extents)] == [*sizes]
