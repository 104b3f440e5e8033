"""Loops that fill a shared tile with a box of a tensor, element by element, are copies of it."""

from __future__ import annotations

from dataclasses import replace

from tilec.backends.cuda.analysis.accesses.gathers import gather_of
from tilec.backends.cuda.analysis.layouts.tiles import whole_tile
from tilec.ir.nodes import Copy, Launch, Parallel, Stmt
from tilec.lowering.analysis.element_boxes import box_of, is_inside
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

_NOTE = "the loop that fills {} copies a box"


class CopyBoxes(LaunchPass):
    """In: loops that fill a whole shared tile from a tensor, each variable moving an axis of both by one, in
    the same order; a condition may say that the element lies inside of the tensor. Out: copies: what they
    read outside of a tensor is 0 as well."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with copies."""
        notes: list[str] = []
        body = rewrite_blocks(launch.body, lambda block: [_copy(stmt, notes) for stmt in block])
        return with_notes(replace(launch, body=body), notes) if notes else launch


def _copy(stmt: Stmt, notes: list[str]) -> Stmt:
    gather = gather_of(stmt) if isinstance(stmt, Parallel) else None
    if gather is None or gather.source.source.scope() != "global" or 1 in gather.extents:
        return stmt
    tensor, places = gather.source.source, list(gather.source.indices)
    if gather.cond is not None and not is_inside(gather.cond, tensor, places):
        return stmt
    source = box_of(tensor, places, gather.vars, gather.extents)
    if source is None:
        return stmt
    notes.append(_NOTE.format(gather.tile.name))
    return Copy(source, whole_tile(gather.tile), loc=stmt.loc)
