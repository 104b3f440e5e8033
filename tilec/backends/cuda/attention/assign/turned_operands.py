"""8-bit operands stored across K that a product takes beside one from registers: they are turned on chip."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import is_whole, static_extents, whole_tile
from tilec.backends.cuda.nodes import TurnTile
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.nodes import Alloc, Block, Copy, Gemm, Pipelined, Stmt, walk
from tilec.ir.traits import buffers
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Var


def with_turned_operands(body: Block) -> Block:
    """``body`` with a TurnTile, into a tile of its own, in front of each product of its loop whose second
    operand is a tile of 8-bit elements with K first that nobody else reads, and the first one a fragment."""
    made: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Pipelined):
            found = [inner for inner in stmt.body if isinstance(inner, Gemm) and _turns(inner, stmt.body)]
            tiles = {gemm: _tile(gemm.b.buffer) for gemm in found}
            made += [Alloc(tile, loc=stmt.loc) for tile in tiles.values()]
            stmt = replace(stmt, body=_with_turns(stmt.body, tiles))
        made.append(stmt)
    return tuple(made)


def _turns(gemm: Gemm, body: Block) -> bool:
    tile = gemm.b.buffer
    sides = static_extents(tile)
    users = [stmt for stmt in walk(body) if tile in set(buffers(stmt)) and not isinstance(stmt, Copy)]
    return (
        not gemm.trans_b
        and gemm.a.buffer.scope() == "local.fragment"
        and tile.scope() == "shared.dyn"
        and element_bytes(str(tile.dtype)) == 1
        and is_whole(gemm.b)
        and not any(side % ROW_BYTES for side in sides)
        and users == [gemm]
    )


def _tile(tile: Var) -> Var:
    return tirx.decl_buffer(
        static_extents(tile)[::-1], str(tile.dtype), name=f"{tile.name}_turned", scope="shared.dyn"
    )


def _with_turns(block: Block, tiles: dict[Gemm, Var]) -> Block:
    made: list[Stmt] = []
    for stmt in block:
        if isinstance(stmt, Gemm) and stmt in tiles:
            to = whole_tile(tiles[stmt])
            made.append(TurnTile(stmt.b, to, loc=stmt.loc))
            stmt = replace(stmt, b=to, trans_b=True)
        made.append(stmt)
    return tuple(made)
