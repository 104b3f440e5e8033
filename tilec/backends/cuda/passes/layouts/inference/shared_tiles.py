"""How shared tiles lie that TMA brings or stores, that lanes read eight rows of at a time, or that products
hand on.

Eight rows of a tile in plain order meet the same banks at the same columns. Boxes of TMA lie in its own
swizzle (`slabs`); tiles that loops fill from a product's sums lie in pieces that change places from row to
row (`swizzled`).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.held_alike import held_alike, sums_in
from tilec.backends.cuda.analysis.layouts.tiles import static_extents, swizzled
from tilec.backends.cuda.analysis.products.units import operands_of
from tilec.backends.cuda.analysis.products.wgmma import slab_bytes, slabs
from tilec.backends.cuda.nodes import (
    BoxLoad,
    HeldProduct,
    TensorProduct,
    TensorStore,
    TurnTile,
    WarpGemm,
    WarpgroupProduct,
)
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Parallel, Stmt, walk
from tilec.ir.nodes.threads import LaneLoad
from tilec.ir.traits import buffers
from tilec.lowering.analysis.accesses import accesses
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.backends.cuda.passes.layouts.inference.known import Known


def lay_shared_tiles(known: Known) -> None:
    """Layouts of the launch's shared tiles, but for those that have one."""
    stmts = list(walk(known.launch.body))
    boxed = [tile for tile in _boxed(stmts, known.fragments) if slab_bytes(tile)]
    for tile in (*_unit_operands(stmts), *boxed):
        known.layouts.setdefault(tile, slabs(tile))
    for tile in _passed_on(stmts) - known.addressed:
        known.layouts.setdefault(tile, swizzled(tile))


def _unit_operands(stmts: Sequence[Stmt]) -> set[Var]:
    """Operands of products that tcgen05 carries out, or wgmma with the first one in registers."""
    by_units = (stmt for stmt in stmts if isinstance(stmt, (HeldProduct, TensorProduct)))
    return {region.buffer for stmt in by_units for region in operands_of(stmt)}


def _boxed(stmts: Sequence[Stmt], fragments: Set[Var]) -> list[Var]:
    """Tiles that TMA stores, and those that it brings for products, for lanes that load rows, or for loops
    over a product's fragments."""
    rowwise = _read_rowwise(stmts, fragments)
    brought = [stmt.dst.buffer for stmt in stmts if isinstance(stmt, BoxLoad)]
    stored = [stmt.src.buffer for stmt in stmts if isinstance(stmt, TensorStore)]
    return [tile for tile in brought if tile in rowwise] + stored


def _read_rowwise(stmts: Sequence[Stmt], fragments: Set[Var]) -> set[Var]:
    """Tiles of which instructions or lanes read eight rows at a time."""
    products = [stmt for stmt in stmts if isinstance(stmt, WarpGemm)]
    found = {region.buffer for stmt in products for region in (stmt.a, stmt.b)}
    found |= {stmt.source.source for stmt in stmts if isinstance(stmt, LaneLoad)}
    found |= {stmt.src.buffer for stmt in stmts if isinstance(stmt, TurnTile)}
    rows = {load.dst.buffer for load in stmts if isinstance(load, BoxLoad) and _brings_rows(load)}
    return found | (_read_to_fragments(stmts, fragments) & rows)


def _read_to_fragments(stmts: Sequence[Stmt], fragments: Set[Var]) -> set[Var]:
    """Tiles of which lanes read pieces of eight rows at once: by loops over a product's sums, over operands
    of wgmma in registers, or over fragments that go into either."""
    held = sums_in(stmts)
    held |= {stmt.a.buffer for stmt in stmts if isinstance(stmt, WarpgroupProduct)} & fragments
    wide = {fragment for fragment in fragments if _is_wide(fragment)}
    loops = [accesses(loop.body) for loop in stmts if isinstance(loop, Parallel) and len(loop.vars) > 1]
    used = [{item.buffer for item in items} for items in loops]
    for found in reversed(used):
        held |= found & wide if found & held else set()
    tiles = {buffer for found in used if found & held for buffer in found}
    return {tile for tile in tiles if tile.scope() == "shared.dyn"}


def _passed_on(stmts: Sequence[Stmt]) -> set[Var]:
    """Tiles of 16 bits that loops write from what products leave, and that loops alone use: in rows one
    behind the other, lanes that have a column of eight rows would meet in the same banks."""
    loops = [stmt for stmt in stmts if isinstance(stmt, Parallel)]
    inside = {inner for loop in loops for inner in walk((loop,))}
    others = (stmt for stmt in stmts if stmt not in inside and not isinstance(stmt, Alloc))
    named = {buffer for stmt in others for buffer in buffers(stmt)}
    held = held_alike(loops, sums_in(stmts))
    made = {
        item.buffer
        for loop in loops
        if any(other.buffer in held for other in accesses(loop.body))
        for item in accesses(loop.body)
        if item.is_write
    }
    return {
        tile for tile in made - named if tile.scope() == "shared.dyn" and element_bytes(str(tile.dtype)) == 2
    }


def _is_wide(fragment: Var) -> bool:
    """Whether a fragment has more than one axis."""
    return sum(extent != 1 for extent in static_extents(fragment)) > 1


def _brings_rows(load: BoxLoad) -> bool:
    """Whether a load brings more than a vector."""
    return sum(int_value(extent) != 1 for extent in load.dst.extent) > 1
