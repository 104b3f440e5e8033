"""First operands that are made of fragments stay in registers: weights that pass through a shared tile."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import is_whole, static_extents
from tilec.backends.cuda.analysis.pipelines.versions import with_buffers
from tilec.backends.cuda.idioms.writings import writings
from tilec.ir.nodes import Alloc, Block, Gemm, Launch, Stmt, children, walk
from tilec.ir.traits import buffers
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Var

_NOTE = "{} stays in registers"


class HoldResults(LaunchPass):
    """In: blocks with a loop or a copy that makes a whole shared tile of fragments, and behind it products
    that take the tile as first operand, its rows along M; nobody else uses it, and no layout is asked for.
    Out: a fragment in its place, of 8 or 16 bits, as products take those from registers."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such fragments."""
        found = {tile: _fragment(tile) for block in _blocks(launch.body) for tile in _made(block, launch)}
        if not found:
            return launch

        def own(block: Block) -> list[Stmt]:
            return [
                replace(stmt, buffer=found[stmt.buffer])
                if isinstance(stmt, Alloc) and stmt.buffer in found
                else stmt
                for stmt in block
            ]

        body = with_buffers(rewrite_blocks(launch.body, own), found)
        return with_notes(replace(launch, body=body), [_NOTE.format(tile.name) for tile in found])


def _blocks(block: Block) -> list[Block]:
    return [block, *(each for stmt in block for inner in children(stmt) for each in _blocks(inner))]


def _fragment(tile: Var) -> Var:
    return tirx.decl_buffer(
        static_extents(tile), str(tile.dtype), name=str(tile.name), scope="local.fragment"
    )


def _made(block: Block, launch: Launch) -> list[Var]:
    """Tiles that a statement of a block makes and products behind it alone use."""
    found: list[Var] = []
    for place, stmt in enumerate(block):
        for writing in writings(stmt):
            made = all(source.scope() == "local.fragment" for source in writing.sources)
            if made and writing.is_whole and _is_operand(writing.tile, stmt, block[place + 1 :], launch):
                found.append(writing.tile)
    return found


def _is_operand(tile: Var, writer: Stmt, behind: Block, launch: Launch) -> bool:
    """Whether a shared tile of 8 or 16 bits is nothing but the first operand of products of ``behind``."""
    if tile.scope() != "shared.dyn" or element_bytes(str(tile.dtype)) > 2:
        return False
    inside = list(walk((writer,)))
    users = [stmt for stmt in walk(launch.body) if tile in set(buffers(stmt)) and stmt not in inside]
    allocs = [stmt for stmt in users if isinstance(stmt, Alloc)]
    products = [stmt for stmt in users if stmt not in allocs]
    plain = all(stmt.asked is None for stmt in allocs)
    return plain and bool(products) and all(stmt in behind and _takes_first(stmt, tile) for stmt in products)


def _takes_first(stmt: Stmt, tile: Var) -> bool:
    if not isinstance(stmt, Gemm) or any(tile.same_as(each.buffer) for each in (stmt.b, stmt.c)):
        return False
    return stmt.a.buffer.same_as(tile) and is_whole(stmt.a) and not stmt.trans_a
