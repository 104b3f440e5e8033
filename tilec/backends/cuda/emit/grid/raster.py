"""The order in which blocks take the tiles of a grid: as the hardware numbers them, or in bands.

A band of ``group`` tiles along one axis is walked across before the next one starts, so that blocks which run
at the same time share operands in the L2 cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.device.exchange import grid_extent
from tilec.backends.cuda.passes.threads.open_barriers import in_clusters
from tilec.ir.nodes import Launch

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def asked_group(launch: Launch) -> tuple[int, str] | None:
    """The tiles of a band and the order ("row": along the second axis), where the config or the author asks
    for bands."""
    if in_clusters(launch):  # the blocks of one are neighbours
        return None
    group = launch.schedule.band
    if group is None or len(launch.grid) < 2:
        return None
    return group, launch.schedule.band_order or "row"


def banded(launch: Launch, blocks: list[Var], sharers: int = 1) -> tuple[list[tirx.Stmt], list[Expr]]:
    """Statements, and the tile's place on each axis of the grid, for the block with these indices; so many
    neighbours along the first axis share a tile and its index.

    Places are kept in registers, so that no simplifier copies their divisions into every address."""
    asked = asked_group(launch)
    if asked is None:
        return [], list(blocks)
    group, order = tirx.const(asked[0], "uint32"), asked[1]
    columns, rows = (grid_extent(axis).call() for axis in "xy")
    if sharers > 1:
        columns = tirx.truncdiv(columns, tirx.const(sharers, "uint32"))
    first, second = (tirx.Cast("uint32", block) for block in blocks[:2])
    names = [tirx.Var(name, "uint32") for name in ("tile", "band", "in_band", "width")]
    tile, band, inside, width = names
    along, across = (rows, columns) if order == "row" else (columns, rows)
    values = [
        second * columns + first,
        tirx.truncdiv(tile, across * group),
        tile - band * across * group,
        tirx.min(group, along - band * group),
    ]
    held = tirx.decl_buffer((2,), "int32", name="place", scope="local")
    places = [tirx.truncdiv(inside, width), band * group + tirx.truncmod(inside, width)]
    if order != "row":
        places.reverse()
    made: list[tirx.Stmt] = [tirx.Bind(name, value) for name, value in zip(names, values, strict=True)]
    made.append(tirx.AllocBuffer(held))
    index = [tirx.const(axis, "int32") for axis in range(2)]
    made += [tirx.BufferStore(held, tirx.Cast("int32", value), [at])
             for value, at in zip(places, index, strict=True)]  # fmt: skip
    return made, [held[index[0]], held[index[1]], *blocks[2:]]
