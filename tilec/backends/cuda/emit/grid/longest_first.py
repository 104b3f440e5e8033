"""The order in which blocks that take longer or shorter take the tiles of a grid: the longest first, so that
those that end last are the shortest.

Positions of the other axes go in sections, one after the other, so that blocks which run at the same time
share what they stream in the L2 cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.blocks.longest import longest_first
from tilec.backends.cuda.device.exchange import grid_extent
from tilec.backends.cuda.limits import gpu_limits
from tilec.backends.cuda.passes.threads.open_barriers import in_clusters
from tilec.ir.exprs import dtype_of

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Launch
    from tilec.targets import Target

#: Blocks of a section for each multiprocessor: the last section ends with blocks that are short beside it.
_WAVES = 4
#: Blocks for each multiprocessor beyond which the order of the hardware stays: what ends late is then a small
#: part of all, and blocks that the hardware has side by side share more in the L2 cache (on an H200 31 of
#: them, retention: 501 us, 529 the longest first; 4 and 16, the launches of a causal gradient: 1930, 1710).
_MANY = 16
_AXES = "xyz"


def by_length(launch: Launch, blocks: list[Var], target: Target) -> tuple[list[tirx.Stmt], list[Expr]] | None:
    """Statements, and the tile's place on each axis of the grid, for the block with these indices; None where
    blocks take about as long, or the order of the hardware is the longest first but for what shares an axis
    in front. Of many blocks the order of the hardware stays, too."""
    found = None if len(blocks) < 2 or in_clusters(launch) else longest_first(launch)
    if found is None or (found[0] > 0 and not found[1]):
        return None
    return _places(found[0], found[1], blocks, gpu_limits(target, {}).units)


def _places(axis: int, grows: bool, blocks: list[Var], units: int) -> tuple[list[tirx.Stmt], list[Expr]]:
    extents = [grid_extent(_AXES[number]).call() for number in range(len(blocks))]
    others = [number for number in range(len(blocks)) if number != axis]
    made: list[tirx.Stmt] = []

    def let(name: str, value: Expr) -> Var:
        made.append(tirx.Bind(var := tirx.Var(name, dtype_of(value)), value))
        return var

    count = let("lengths", extents[axis])
    tile = let("tile", _number_of(blocks, extents))
    positions = let("positions", reduce(mul, (extents[number] for number in others)))
    wanted = tirx.const(_WAVES * units - 1, "uint32")
    wide = let("wide", tirx.min(positions, tirx.truncdiv(wanted, count) + tirx.const(1, "uint32")))
    section = let("section", tirx.truncdiv(tile, count * wide))
    inside = let("in_section", tile - section * count * wide)
    width = let("width", tirx.min(wide, positions - section * wide))
    back = let("back", tirx.truncdiv(inside, width))
    position: Expr = let("position", section * wide + (inside - back * width))
    values: dict[int, Expr] = {axis: count - tirx.const(1, "uint32") - back if grows else back}
    for number in others[:-1]:
        values[number] = tirx.truncmod(position, extents[number])
        position = tirx.truncdiv(position, extents[number])
    values[others[-1]] = position
    few = let("few", count * positions <= tirx.const(_MANY * units, "uint32"))
    chosen = [
        tirx.if_then_else(few, values[number], tirx.Cast("uint32", block))
        for number, block in enumerate(blocks)
    ]
    return _kept(made, chosen)


def _number_of(blocks: Sequence[Var], extents: Sequence[Expr]) -> Expr:
    """The number of a block among all, the first axis counting fastest."""
    number: Expr = tirx.Cast("uint32", blocks[-1])
    for block, extent in reversed(list(zip(blocks[:-1], extents[:-1], strict=True))):
        number = number * extent + tirx.Cast("uint32", block)
    return number


def _kept(made: list[tirx.Stmt], values: list[Expr]) -> tuple[list[tirx.Stmt], list[Expr]]:
    """Places in registers, so that no simplifier copies their divisions into every address."""
    held = tirx.decl_buffer((len(values),), "int32", name="place", scope="local")
    index = [tirx.const(number, "int32") for number in range(len(values))]
    made.append(tirx.AllocBuffer(held))
    stores = [
        tirx.BufferStore(held, tirx.Cast("int32", value), [at])
        for value, at in zip(values, index, strict=True)
    ]
    return [*made, *stores], [held[at] for at in index]
