"""Products read a tile itself where they would read one that is its transposition.

    for i, j: Vt[i, j] = Vs[j, i];  O += P Vt^T    ->    O += P Vs

wgmma reads operands of 16 bits along either side; those of 8 bits are turned by matrices on their way.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.layouts.tiles import is_whole, static_extents, whole_tile
from tilec.backends.cuda.analysis.products.turn_operands import UNITS
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Block, Gemm, Launch, Parallel, Region, Stmt, Store, children, walk
from tilec.ir.traits import buffers, written
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Var


class ReadTurnedTiles(LaunchPass):
    """In: a loop that transposes all of a shared tile into another one, which nothing but products of the
    same block behind it reads, before the first tile changes. Out: these products with the first tile, turned
    by them; the other one takes no room."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such products."""
        for stmt in walk(launch.body):
            pair = _turned(stmt)
            if pair is not None and _only_multiplied(launch, stmt, *pair):
                read = partial(_read, loop=stmt, source=pair[0], target=pair[1])
                return self.launch(replace(launch, body=rewrite_blocks(launch.body, read)))
        return launch


def _turned(stmt: Stmt) -> tuple[Var, Var] | None:
    """The tile that a loop reads and the one that has its transposition then; None for other statements."""
    if not isinstance(stmt, Parallel) or len(stmt.vars) != 2 or len(stmt.body) != 1:
        return None
    (store,) = stmt.body
    if not isinstance(store, Store) or not isinstance(store.value, TensorLoad):
        return None
    source, target = store.value.source, store.buffer
    shared = all(str(tile.scope()) == "shared.dyn" and len(tile.shape) == 2 for tile in (source, target))
    if not shared or source.same_as(target) or str(source.dtype) != str(target.dtype) or not _turns(source):
        return None
    first, second = store.indices
    crossed = len(store.value.indices) == 2 and all(
        index.same_as(other) for index, other in zip(store.value.indices, (second, first), strict=True)
    )
    extents = {var: int_value(extent) for var, extent in zip(stmt.vars, stmt.extents, strict=True)}
    whole = (extents.get(first), extents.get(second)) == static_extents(target)
    sides = static_extents(target) == static_extents(source)[::-1]
    return (source, target) if crossed and whole and sides and not first.same_as(second) else None


def _turns(tile: Var) -> bool:
    """Whether products take a tile stored along either side, or turn it themselves."""
    size, sides = element_bytes(str(tile.dtype)), static_extents(tile)
    return size == 2 or (size == 1 and all(side % max(UNITS[1]) == 0 for side in sides))


def _only_multiplied(launch: Launch, loop: Stmt, source: Var, target: Var) -> bool:
    """Whether all users of ``target`` are products of the loop's block that follow it before ``source``
    changes, with all of it as an operand."""
    block = _block_of(loop, launch.body)
    behind = block[block.index(loop) + 1 :]
    users = [stmt for stmt in walk(launch.body) if target in set(buffers(stmt))]
    products = [stmt for stmt in behind if target in set(buffers(stmt))]
    store = loop.body[0]  # type: ignore[attr-defined]
    others = [stmt for stmt in users if not isinstance(stmt, Alloc) and stmt not in (loop, store)]
    if not products or others != products or not all(_is_operand(stmt, target) for stmt in products):
        return False
    until = behind[: behind.index(products[-1])]
    return not any(source in set(written(inner)) for inner in walk(until))


def _block_of(stmt: Stmt, block: Block) -> Block:
    """The block that a statement stands in."""
    if stmt in block:
        return block
    inside = (inner for each in block for inner in children(each))
    return next((found for each in inside if (found := _block_of(stmt, each))), ())


def _is_operand(stmt: Stmt, tile: Var) -> bool:
    if not isinstance(stmt, Gemm) or stmt.c.buffer.same_as(tile):
        return False
    return all(is_whole(region) for region in (stmt.a, stmt.b) if region.buffer.same_as(tile))


def _read(block: Block, loop: Stmt, source: Var, target: Var) -> list[Stmt]:
    """A block with the products behind ``loop`` on ``source``."""
    if loop not in block:
        return [stmt for stmt in block if not (isinstance(stmt, Alloc) and stmt.buffer.same_as(target))]
    made: list[Stmt] = []
    for stmt in block:
        if isinstance(stmt, Gemm) and target in set(buffers(stmt)):
            stmt = _on(stmt, source, target)
        if stmt is not loop and not (isinstance(stmt, Alloc) and stmt.buffer.same_as(target)):
            made.append(stmt)
    return made


def _on(gemm: Gemm, source: Var, target: Var) -> Gemm:
    tile: Region = whole_tile(source)
    if gemm.a.buffer.same_as(target):
        gemm = replace(gemm, a=tile, trans_a=not gemm.trans_a)
    if gemm.b.buffer.same_as(target):
        gemm = replace(gemm, b=tile, trans_b=not gemm.trans_b)
    return gemm
