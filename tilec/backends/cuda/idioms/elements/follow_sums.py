"""Loops over elements that read fragments transposed go over the fragments' own elements.

for j, i: C[j, i] = acc[i, j] * s    ->    for i, j: C[j, i] = acc[i, j] * s
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.ir.exprs import same_all
from tilec.ir.hints import Hints
from tilec.ir.nodes import Copy, Launch, Parallel, Stmt
from tilec.lowering.analysis.accesses import accesses
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.uses import order_counts
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks
from tilec.lowering.passes.expand_copies import expand_copy

if TYPE_CHECKING:
    from tvm.ir import Var

_NOTE = "the loop that reads {} transposed goes over its elements"


class FollowSums(LaunchPass):
    """In: loops and copies over two variables that touch fragments at (j, i) alone, where (i, j) are the
    loop's: a result that is stored transposed. Out: the same loops over (j, i), which epilogues may hold."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such loops turned; one whose stores have an order as it is."""
        if order_counts(launch):
            return launch
        read: dict[str, None] = {}
        body = rewrite_blocks(launch.body, lambda block: [_turned(stmt, read) for stmt in block])
        return with_notes(replace(launch, body=body), [*map(_NOTE.format, read)]) if read else launch


def _turned(stmt: Stmt, read: dict[str, None]) -> Stmt:
    """A loop over the elements of the fragments that it touches; other statements as they are."""
    loop = expand_copy(stmt) if isinstance(stmt, Copy) else stmt
    if not isinstance(loop, Parallel) or len(loop.vars) != 2:
        return stmt
    fragments = _transposed(loop)
    read.update((str(fragment.name), None) for fragment in fragments)
    turned = replace(loop, vars=loop.vars[::-1], extents=loop.extents[::-1], hints=Hints())
    return turned if fragments else stmt


def _transposed(loop: Parallel) -> list[Var]:
    """The fragments that a loop touches, where it is at exchanged variables alone; else none."""
    items = [item for item in accesses(loop.body) if item.buffer.scope() == "local.fragment"]
    across = all(same_all(item.indices, loop.vars[::-1]) for item in items)
    return [item.buffer for item in items] if across else []
