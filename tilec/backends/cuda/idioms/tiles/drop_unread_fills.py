"""Shared tiles that are filled with a value which nothing reads.

fill(K_s, 0); for k: copy(K[k], K_s); ...    ->    for k: copy(K[k], K_s); ...
"""

from __future__ import annotations

from dataclasses import replace

from tilec.backends.cuda.analysis.layouts.tiles import is_whole
from tilec.ir.nodes import Block, Fill, Launch, Stmt
from tilec.lowering.analysis.flow import is_read_next
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.uses import count_uses
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

_NOTE = "{} is overwritten before anything reads what fills it"


class DropUnreadFills(LaunchPass):
    """In: fills of whole shared tiles. Out: none of tiles that are overwritten, behind the fill or in every
    trip of a loop there, before anything reads them: a tile with other writers than its loads is no ring."""

    def launch(self, launch: Launch) -> Launch:
        """The launch without such fills."""
        unread: list[Fill] = []

        def rewrite(block: Block) -> list[Stmt]:
            unread.extend(
                stmt
                for at, stmt in enumerate(block)
                if isinstance(stmt, Fill) and _is_unread(stmt, block[at + 1 :], launch)
            )
            return [stmt for stmt in block if stmt not in unread]

        made = replace(launch, body=rewrite_blocks(launch.body, rewrite))
        return with_notes(made, [_NOTE.format(stmt.dst.buffer.name) for stmt in unread]) if unread else launch


def _is_unread(fill: Fill, behind: Block, launch: Launch) -> bool:
    tile = fill.dst.buffer
    if tile.scope() != "shared.dyn" or not is_whole(fill.dst) or is_read_next(behind, tile):
        return False
    return 1 < count_uses((fill, *behind), tile) == count_uses(launch.body, tile)
