"""What a loop's trips pass on to other threads unchanged is passed on once, in front of the loop.

for g in range(4):                 s[i, j] = f[i, j]
    s[i, j] = f[i, j]        ->    for g in range(4):
    t[j] += s[j, g]                    t[j] += s[j, g]
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm.ir import TensorLoad

from tilec.backends.cuda.nodes import ThreadLoop
from tilec.ir.exprs import same_all
from tilec.ir.nodes import Alloc, Block, For, Launch, Stmt, Store, children, walk, with_children
from tilec.ir.traits import written
from tilec.lowering.analysis.uses import written_in
from tilec.lowering.passes.base import LaunchPass

if TYPE_CHECKING:
    from tvm.ir import Var


class HoistPassages(LaunchPass):
    """In: launches with layouts. Out: copies of whole fragments to shared tiles that nothing else writes
    stand in front of the serial loops whose trips leave the fragment as it is."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its passages in front of loops."""
        writes = Counter(buffer for stmt in walk(launch.body) for buffer in written(stmt))
        return replace(launch, body=_block(launch.body, writes))


def _block(block: Block, writes: Counter[Var]) -> Block:
    made: list[Stmt] = []
    for stmt in block:
        new = with_children(stmt, [_block(inner, writes) for inner in children(stmt)])
        ahead = _ahead(new, writes) if isinstance(new, For) else ()
        if ahead:
            (body,) = children(new)
            new = with_children(new, [tuple(inner for inner in body if inner not in ahead)])
        made += [*ahead, new]
    return tuple(made)


def _ahead(loop: For, writes: Counter[Var]) -> Block:
    """What may stand in front of a loop: passages, behind those of their tiles that the loop has made."""
    changed = written_in(loop.body)
    found, tiles = [], set()
    for stmt in loop.body:
        passage = _passage(stmt)
        if passage is not None and passage[0] not in changed and writes[passage[1]] == 1:
            found.append(stmt)
            tiles.add(passage[1])
    return (*(stmt for stmt in loop.body if isinstance(stmt, Alloc) and stmt.buffer in tiles), *found)


def _passage(stmt: Stmt) -> tuple[Var, Var] | None:
    """The fragment and the shared tile of a copy of every element to its own place; None for any other
    statement."""
    if type(stmt) is not ThreadLoop or len(stmt.body) != 1:
        return None
    (store,) = stmt.body
    if not isinstance(store, Store) or not isinstance(store.value, TensorLoad):
        return None
    source, tile = store.value.source, store.buffer
    held = source.scope() == "local.fragment" and tile.scope() == "shared.dyn"
    whole = same_all(tuple(store.value.indices), store.indices) and same_all(store.indices, stmt.vars)
    return (source, tile) if held and whole else None
