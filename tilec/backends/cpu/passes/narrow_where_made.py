"""Values that a tile has on their way to a narrower one are a tile of their own, and narrower where made.

gemm(Q, K, S, clear=1)                             gemm(Q, K, S, clear=1)
for i, j: S[i, j] = exp2(S[i, j] - top[i])         for i, j: made[i, j] = exp2(S[i, j] - top[i])
reduce_sum(S, total)                         ->    copy(made, P)
...                                                reduce_sum(made, total)
copy(S, P)                                         ...

The loops that these are later run as one (`fuse_elementwise`), in which ``made`` is a register
(`privatise_tiles`): nothing is stored in the wider type, and nothing loaded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.dtypes import DTYPES
from tilec.ir.analysis.renaming import renamed
from tilec.ir.nodes import Alloc, Bind, Block, Copy, Launch, Parallel, Reduce, Stmt, Store, is_global, walk
from tilec.ir.traits import mentioned
from tilec.lowering.analysis.flow import begins_anew
from tilec.lowering.analysis.regions import is_whole
from tilec.lowering.analysis.uses import count_uses, touches
from tilec.lowering.analysis.whole_stores import stores_each
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Var


class NarrowWhereMade(LaunchPass):
    """In: blocks in which a loop replaces all elements of a tile, whose new ones only go to reductions and to
    a tile of a narrower type. Out: the new ones are a tile of their own, which is copied to the narrower one
    right behind the loop."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such tiles parted."""

        def block(body: Block) -> Block:
            for copy in [stmt for stmt in body if isinstance(stmt, Copy) and _narrows(stmt)]:
                tile = copy.src.buffer
                has_all = count_uses(body, tile) == count_uses(launch.body, tile)
                body = _parted(body, copy) if has_all and begins_anew(tile, body) else body
            return body

        return replace(launch, body=rewrite_blocks(launch.body, block))


def _narrows(copy: Copy) -> bool:
    """Whether a statement copies all of a tile to all of one of a narrower type."""
    tiles = (copy.src.buffer, copy.dst.buffer)
    if any(map(is_global, tiles)) or not (is_whole(copy.src) and is_whole(copy.dst)):
        return False
    wide, narrow = (DTYPES[str(tile.dtype)].bits for tile in tiles)
    return narrow < wide


def _parted(body: Block, copy: Copy) -> Block:
    """A block that has all uses of the tile of ``copy``, with the values that are copied in a tile of their
    own; as it is where something else needs these, or the narrower tile before the copy."""
    old = copy.src.buffer
    loop, takers = _made(body, old)
    if loop is None or copy not in takers or not all(stmt is copy or _reduces(stmt) for stmt in takers):
        return body
    start, end = body.index(loop), body.index(copy)
    if any(copy.dst.buffer in mentioned(inner) for inner in walk(body[start + 1 : end])):
        return body
    new = tirx.decl_buffer(old.shape, str(old.dtype), f"{old.name}_made", scope=str(old.scope()))
    *names, store = loop.body
    assert isinstance(store, Store)
    maker = replace(loop, body=(*names, replace(store, buffer=new)))
    behind = renamed((copy, *body[start + 1 : end], *body[end + 1 :]), {old: new})
    return (*body[:start], Alloc(new, loc=loop.loc), maker, *behind)


def _made(body: Block, tile: Var) -> tuple[Parallel | None, Block]:
    """The last loop of a block that replaces the elements of a tile, behind the statement that begins with
    it, and the statements that name the tile since."""
    users = [stmt for stmt in body if touches(stmt, tile)]
    for at in range(len(users) - 1, 0, -1):
        loop = users[at]
        if isinstance(loop, Parallel) and _replaces(loop, tile):
            return loop, tuple(users[at + 1 :])
    return None, ()


def _replaces(loop: Parallel, tile: Var) -> bool:
    """Whether a loop ends with the store of each element of a tile, and has no other to it."""
    *names, last = loop.body
    is_store = isinstance(last, Store) and last.buffer.same_as(tile) and stores_each(last, loop)
    return is_store and all(isinstance(name, Bind) for name in names)


def _reduces(stmt: Stmt) -> bool:
    """Whether a statement is a reduction of a tile to others."""
    return isinstance(stmt, Reduce) and not stmt.dst.buffer.same_as(stmt.src.buffer)
