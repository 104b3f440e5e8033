"""Tiles that come in parts, such as pages, are brought by two threads.

A box takes the thread that starts it about 60 clocks, however little it brings: places that are looked up are
no numbers of a warp, and move to its registers one by one. Pages of 16 keys are 16 boxes for a trip of 64
keys with heads of 128.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tilec.backends.cuda.attention.assign.parts import needed
from tilec.backends.cuda.attention.nodes import RingPut, TileRing
from tilec.backends.cuda.warp_roles.nodes import TmaLoad
from tilec.ir.nodes import Bind, Block, For, If, Stmt, walk


def shared_loads(producer: Block) -> tuple[Block, Block]:
    """What the first thread brings and what the second one does: every other ring of those that several boxes
    fill, nothing where there are no two of them."""
    puts = [stmt for stmt in walk(producer) if isinstance(stmt, RingPut) and _has_parts(stmt)]
    second = list(dict.fromkeys(stmt.ring for stmt in puts))[1::2]
    if not second:
        return producer, ()
    return _only(producer, lambda ring: ring not in second), _only(producer, lambda ring: ring in second)


def _has_parts(put: RingPut) -> bool:
    return sum(isinstance(stmt, TmaLoad) for stmt in put.body) > 1


def _only(block: Block, keeps: Callable[[TileRing], bool]) -> Block:
    """What of a block fills some rings."""
    return needed(tuple(new for stmt in block for new in _kept(stmt, keeps)))


def _kept(stmt: Stmt, keeps: Callable[[TileRing], bool]) -> Iterator[Stmt]:
    if isinstance(stmt, If):
        yield replace(stmt, then=_only(stmt.then, keeps), orelse=_only(stmt.orelse, keeps))
    elif isinstance(stmt, For):
        yield replace(stmt, body=_only(stmt.body, keeps))
    elif isinstance(stmt, Bind) or (isinstance(stmt, RingPut) and keeps(stmt.ring)):
        yield stmt
