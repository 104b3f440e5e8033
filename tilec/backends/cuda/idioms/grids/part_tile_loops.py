"""A walk over whole tiles in front of other products is a launch of its own.

Blocks that share what does not fill a wave (stream-K) take their whole tiles first, one after the other, in
the order in which their author numbers them. As a launch these tiles get roles and bands; the other one,
behind it, adds or stores what is left. H200, 4096 x 5120 x 8192 in float16: 776 us together, 532 apart.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.idioms.grids.open_tile_loops import PLAIN, OpenTileLoops
from tilec.ir.analysis.aliases import named
from tilec.ir.analysis.renaming import copied
from tilec.ir.exprs import loads
from tilec.ir.nodes import Alloc, Bind, Block, For, Gemm, Kernel, Launch, Stmt, While, is_global, walk
from tilec.ir.options import NO_ROLES
from tilec.lowering.analysis.flow import is_read_next
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.passes.base import Pass

if TYPE_CHECKING:
    from tilec.targets import Target

_TILES = "the whole tiles that its blocks walk over first are a launch of their own"
_REST = "launched behind its blocks' whole tiles"


class PartTileLoops(Pass):
    """In: a launch whose blocks walk over independent tiles with products, and then do something else with
    products that needs nothing of the walk but what it stores. Out: a launch for each, the walk's first: all
    blocks may be done with it before one of them goes on."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its launches parted."""
        if kernel.option(NO_ROLES) is not None:
            return kernel
        body: list[Stmt] = []
        for stmt in kernel.body:
            body += _parted(stmt) if isinstance(stmt, Launch) else (stmt,)
        return replace(kernel, body=tuple(body))


def _parted(launch: Launch) -> Block:
    """The launch of a walk and that of the rest; the launch itself where it is no such one."""
    at = next((place for place, stmt in enumerate(launch.body) if isinstance(stmt, For)), None)
    if at is None or named(launch) or launch.thread_vars or launch.schedule.cluster_dims:
        return (launch,)
    head, walked, rest = launch.body[:at], launch.body[at], launch.body[at + 1 :]
    tiles = replace(launch, body=(*head, walked))
    if not (_multiplies((walked,)) and _multiplies(rest) and _is_apart(head, rest)):
        return (launch,)
    if OpenTileLoops().launch(tiles) is tiles:
        return (launch,)
    (behind,) = copied((replace(launch, body=(*head, *rest)),))
    assert isinstance(behind, Launch)
    return (with_notes(tiles, [_TILES]), with_notes(behind, [_REST]))


def _multiplies(block: Block) -> bool:
    return any(isinstance(stmt, Gemm) for stmt in walk(block))


def _is_apart(head: Block, rest: Block) -> bool:
    """Whether what stands behind a walk waits for no other block and reads no tile or scalar of the walk."""
    if not all(isinstance(stmt, (Alloc, Bind)) for stmt in head):
        return False
    if not all(_is_plain(stmt) for stmt in walk(rest)):
        return False
    return not any(is_read_next(rest, stmt.buffer) for stmt in head if isinstance(stmt, Alloc))


def _is_plain(stmt: Stmt) -> bool:
    if not isinstance(stmt, While):
        return isinstance(stmt, PLAIN)
    return not any(is_global(load.source) for load in loads(stmt.cond))
