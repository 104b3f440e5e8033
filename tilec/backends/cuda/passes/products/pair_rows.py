"""Products of wgmma whose lanes have two neighbouring rows, not rows eight apart.

An operand in registers that lanes convert from numbers of 4 bytes is read in pairs of 8, half a warp at a
time: four rows of four pairs. In tiles that TMA swizzles, two rows that follow each other have such pairs in
the same banks, and every second row has not. Which row of its tile an instruction takes for which of its own
is free as long as its sums follow.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.nodes import SparseWarpgroupProduct, WarpGemm, WarpgroupProduct
from tilec.ir.exprs import int_value, linear_in
from tilec.ir.nodes import Block, Launch, Parallel, Stmt, walk
from tilec.lowering.analysis.accesses import accesses
from tilec.lowering.analysis.uses import written_in
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Var

#: Bytes of a number, two of which half a warp reads of four rows at once.
_WORD = 4
#: Bytes of all banks of shared memory side by side.
_BANKS = 128


class PairRows(LaunchPass):
    """In: products of wgmma. Out: those whose operand in registers loops make of numbers of 4 bytes in shared
    memory have pairs of rows in a lane, where all products of their sums are such."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its products."""
        products = [stmt for stmt in walk(launch.body) if isinstance(stmt, WarpGemm)]
        made = _made_of_words(launch)
        other = {region.buffer for stmt in products if not _takes(stmt, made) for region in (stmt.a, stmt.c)}
        operands = {stmt.a.buffer for stmt in products}
        found = {
            stmt
            for stmt in products
            if not {stmt.a.buffer, stmt.c.buffer} & other and stmt.c.buffer not in operands
        }

        def rewrite(block: Block) -> list[Stmt]:
            return [_paired(stmt) if stmt in found else stmt for stmt in block]

        return replace(launch, body=rewrite_blocks(launch.body, rewrite)) if found else launch


def _paired(stmt: Stmt) -> Stmt:
    assert isinstance(stmt, WarpGemm)
    return replace(stmt, tile=replace(stmt.tile, paired=True))


def _takes(stmt: WarpGemm, made: set[Var]) -> bool:
    """Whether a product of wgmma takes one of these fragments, and no places, which lie by rows, too."""
    if not isinstance(stmt, WarpgroupProduct) or isinstance(stmt, SparseWarpgroupProduct):
        return False
    return stmt.registers is None and stmt.a.buffer in made


def _made_of_words(launch: Launch) -> set[Var]:
    """The fragments of 16 bits that loops over elements make of tiles of words, and of no other fragment:
    what a lane has of those lies as they do."""
    loops = [stmt for stmt in walk(launch.body) if isinstance(stmt, Parallel) and len(stmt.vars) > 1]
    made = {tile for loop in loops if _reads_pairs(loop) for tile in written_in(loop.body)
            if tile.scope() == "local.fragment" and element_bytes(str(tile.dtype)) == _WORD // 2}  # fmt: skip
    touched = [{item.buffer for item in accesses(loop.body)} for loop in loops]
    return {tile for tile in made if not any(tile in own and _has_fragments(own - {tile}) for own in touched)}


def _has_fragments(tiles: set[Var]) -> bool:
    return any(tile.scope() == "local.fragment" for tile in tiles)


def _reads_pairs(loop: Parallel) -> bool:
    """Whether neighbours along a loop's last axis read neighbours of a row of words, of a line of banks."""
    items = (item for item in accesses(loop.body) if not item.is_write and _is_in_lines(item.buffer))
    steps = (linear_in(item.indices[-1], [loop.vars[-1]]) for item in items)
    return any(step and int_value(step[0]) == 1 for step in steps)


def _is_in_lines(tile: Var) -> bool:
    """Whether a tile is of words in shared memory, whose rows are as long as all banks."""
    is_word = tile.scope() == "shared.dyn" and element_bytes(str(tile.dtype)) == _WORD
    return is_word and len(tile.shape) > 1 and static_extents(tile)[-1] * _WORD >= _BANKS
