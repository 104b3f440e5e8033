"""What warp roles make of the layouts that authors ask for: tiles lie as TMA and wgmma take them."""

from __future__ import annotations

from collections.abc import Iterator

from tilec.backends.cuda.analysis.layouts.asked_layouts import layout_road
from tilec.backends.cuda.analysis.layouts.fragments import accumulator_layout
from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.analysis.products.wgmma import ROWS
from tilec.backends.cuda.nodes import WarpTile
from tilec.backends.cuda.warp_roles.nodes import TileStore
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.layout import Layout
from tilec.ir.layout_algebra import canonical
from tilec.ir.nodes import Alloc, Launch, walk
from tilec.ir.roads import Loss, Road
from tilec.ir.traits import loads_of

#: Rows of an instruction that one warp holds, and columns that its lanes share.
_WARP_ROWS, _WARP_COLUMNS = 16, 8
_REMEDY = "leave T.annotate_layout out; only launches without warp roles obey it"


def layouts_of_roles(launch: Launch) -> tuple[Road, ...]:
    """What has become, behind all passes, of the layouts that the author of a launch asks for."""
    asking = [stmt for stmt in launch.asked if isinstance(stmt, Alloc)]
    held = _held(launch) if asking else []
    losses = ((alloc, _loss(alloc, held)) for alloc in asking)
    return tuple(layout_road(alloc, "laid out as TMA and wgmma take it", loss) for alloc, loss in losses)


def _held(launch: Launch) -> list[tuple[str, Layout | None]]:
    """The layouts of tiles by name, those of the sums of products among them."""
    allocs = [stmt for stmt in walk(launch.body) if isinstance(stmt, Alloc)]
    sums = {name: layout for stmt in walk(launch.body) if isinstance(stmt, TileStore)
            for name, layout in _sums(stmt)}  # fmt: skip
    names = [(str(stmt.buffer.name), stmt.layout) for stmt in allocs]
    return [(name, sums.get(name) if layout is None else layout) for name, layout in names]


def _sums(store: TileStore) -> Iterator[tuple[str, Layout]]:
    """The fragment that a store takes elements from, where each warpgroup has 64 of its rows."""
    if store.rows != ROWS or store.turned or store.parts != 1:
        return
    rows, columns = store.extents
    tile = WarpTile("", (rows // _WARP_ROWS, 1), (1, columns // _WARP_COLUMNS), 0)
    for load in loads_of(*walk(store.body)):
        fragment = load.source
        if fragment.scope() == "local.fragment" and static_extents(fragment) == store.extents:
            yield str(fragment.name), accumulator_layout(tile)


def _loss(alloc: Alloc, held: list[tuple[str, Layout | None]]) -> Loss | None:
    """None where a tile, or each version of it in a ring, lies as its author asks."""
    assert alloc.asked is not None
    wanted, name = canonical(alloc.asked.layout), str(alloc.buffer.name)
    found = [_of_one(layout, len(wanted.digits)) for tile, layout in held if tile == name]
    if found and all(layout == wanted for layout in found):
        return None
    why = f"tiles of TMA and wgmma have slabs of {ROW_BYTES} bytes in one order, and fragments those of wgmma"
    return Loss("", why, _REMEDY)


def _of_one(layout: Layout | None, rank: int) -> Layout | None:
    """The layout of one version of a tile with ``rank`` axes."""
    if layout is None:
        return None
    return canonical(Layout(layout.digits[len(layout.digits) - rank :], layout.swizzle))
