"""Two trips in turn make the operands of a product in registers, and wait for the products of both at once.

    for k: W = f(raw[k]); C += W B[k]; wait    ->    for k: W = f(raw[2 k]); C += W B[2 k];
                                                            V = f(raw[2 k + 1]); C += V B[2 k + 1]; wait

Products that read registers are complete at the end of a trip, and a warpgroup begins the next one with
nothing under way: it looks whether its stage is there, finds its place and makes the first step, while
another one multiplies. Where that takes longer than the products of a trip, both wait. Of two trips one
begins beside the products of the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.analysis.products.wgmma import Chooser
from tilec.backends.cuda.nodes import BoxLoad
from tilec.ir.analysis.renaming import renamed
from tilec.ir.exprs import int_value
from tilec.ir.nodes import LOOPS, Alloc, Block, For, Gemm, Launch, Stmt, walk
from tilec.ir.nodes.barriers import WARP, Group
from tilec.ir.traits import buffers
from tilec.lowering.analysis.uses import written_in
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks
from tilec.lowering.trip_pairs import in_pairs, runs_in_groups

if TYPE_CHECKING:
    from tvm.ir import Var

#: Columns of a product beside which threads make the operand of the next one.
_WIDE = 256
#: Stages of a ring of which a pair of trips holds two.
PAIRED_STAGES = 4


class PairTrips(LaunchPass):
    """In: loops of consumers whose only products, of wgmma and 256 columns, take an operand from registers
    that the trip writes, and another from a ring of enough stages. Out: a trip does the work of two, with
    fragments of their own; behind the loop stands a last one where there is an odd number."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its trips; one without rings as it is."""
        if not any(isinstance(stmt, BoxLoad) for stmt in walk(launch.body)):
            return launch
        chooser = Chooser(launch, None)

        def rewrite(group: Group) -> Group:
            warps = group.count // WARP
            return replace(
                group, body=rewrite_blocks(group.body, lambda block: _paired(block, chooser, warps))
            )

        body = [rewrite(stmt) if isinstance(stmt, Group) else stmt for stmt in launch.body]
        return replace(launch, body=tuple(body))


def _paired(block: Block, chooser: Chooser, warps: int) -> list[Stmt]:
    """A block with its loops of made operands."""
    made: list[Stmt] = []
    for stmt in block:
        own = _operands(stmt, chooser, warps) if isinstance(stmt, For) else []
        made += _pair(stmt, own) if isinstance(stmt, For) and own else [stmt]
    return made


def _operands(loop: For, chooser: Chooser, warps: int) -> list[Var]:
    """The fragments that a trip makes for its products; none where it does something else."""
    inner = [stmt for stmt in walk(loop.body) if isinstance(stmt, (Gemm, *LOOPS))]
    products = [stmt for stmt in loop.body if isinstance(stmt, Gemm)]
    if not runs_in_groups(loop) or loop.kind != "serial" or not products or len(products) != len(inner):
        return []
    made = written_in(loop.body)
    own = [stmt.a.buffer for stmt in products]
    sums = {stmt.c.buffer for stmt in products}
    changed = any(sums & set(buffers(stmt)) for stmt in walk(loop.body) if stmt not in products)
    held = all(tile.scope() == "local.fragment" and tile in made for tile in own)
    if len(sums) > 1 or changed or not held:
        return []
    fits = all(
        is_wide(stmt) and (int_value(stmt.b.buffer.shape[0]) or 0) >= PAIRED_STAGES for stmt in products
    )
    return own if fits and all(chooser.takes(stmt, warps) for stmt in products) else []


def is_wide(product: Gemm) -> bool:
    """Whether a product runs so long that threads make its operand beside others."""
    return max(static_extents(product.c.buffer)) >= _WIDE


def _pair(loop: For, operands: list[Var]) -> list[Stmt]:
    """A loop over pairs of trips, and the last trip of an odd number."""
    others = {tile: _odd(tile) for tile in operands}
    return [*map(Alloc, others.values()), *in_pairs(loop, loop.body, renamed(loop.body, others))]


def _odd(tile: Var) -> Var:
    """The fragment of the second trip of a pair."""
    return tirx.decl_buffer(tile.shape, str(tile.dtype), name=f"{tile.name}_odd", scope=tile.scope())
