"""Products whose second operand threads make are computed transposed, so that it can stay in registers.

for k: W = float16(raw[k]); C += A[k] W^T    ->    for k: W = float16(raw[k]); C^T += W A[k]^T
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.tiles import is_whole
from tilec.backends.cuda.analysis.turned_sums import (
    transposed,
    turned_elements,
    turned_product,
    turned_region,
)
from tilec.backends.cuda.analysis.wgmma import Chooser
from tilec.backends.cuda.general.alternate_operands import made_in
from tilec.backends.cuda.nodes import BoxLoad
from tilec.ir.nodes import Alloc, Block, Copy, Fill, For, Gemm, Launch, Parallel, Stmt, walk
from tilec.ir.nodes.barriers import WARP, Group
from tilec.ir.traits import buffers
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks
from tilec.lowering.passes.expand_copies import expand_copy

if TYPE_CHECKING:
    from tvm.ir import Var

NOTE = "the product of {} is computed transposed"
#: What is turned with the sums.
_TURNED = (Alloc, Fill, Copy, Parallel, Gemm)


class TurnProducts(LaunchPass):
    """In: loops of consumers that fill a whole shared tile of 16 bits, rows along N, in each trip for a
    product of wgmma. Out: that tile is its first operand, where nothing but fills, copies and loops over
    elements touches the sums beside it."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its products turned."""
        if not any(isinstance(stmt, BoxLoad) for stmt in walk(launch.body)):
            return launch
        chooser = Chooser(launch, None)
        found = [
            gemm
            for group in launch.body
            if isinstance(group, Group)
            for loop in walk(group.body)
            if isinstance(loop, For)
            for tile in made_in(loop, group, launch, chooser)
            for gemm in _second_of(tile, loop)
            if can_turn(gemm, launch, chooser, group.count // WARP)
        ]
        for gemm in found:
            launch = with_turned(launch, gemm)
        return with_notes(launch, [NOTE.format(gemm.b.buffer.name) for gemm in found]) if found else launch


def _second_of(tile: Var, loop: For) -> list[Gemm]:
    """The product whose second operand a tile is, as it stands; none where others take it, too."""
    users = [stmt for stmt in loop.body if isinstance(stmt, Gemm) and tile in (stmt.a.buffer, stmt.b.buffer)]
    alone = len(users) == 1 and users[0].b.buffer.same_as(tile) and not users[0].a.buffer.same_as(tile)
    fits = alone and users[0].trans_b and is_whole(users[0].b) and element_bytes(str(tile.dtype)) == 2
    return users if fits and users[0].a.buffer.scope() == "shared.dyn" else []


def can_turn(gemm: Gemm, launch: Launch, chooser: Chooser, warps: int) -> bool:
    """Whether wgmma takes a product transposed, and all that touches its sums is turned with them."""
    sums = gemm.c.buffer
    if len(sums.shape) != 2 or not is_whole(gemm.c):
        return False
    inside = {part for stmt in walk(launch.body) if isinstance(stmt, Parallel) for part in walk(stmt.body)}
    users = [stmt for stmt in walk(launch.body) if sums in set(buffers(stmt)) and stmt not in inside]
    known = all(isinstance(stmt, _TURNED) and getattr(stmt, "asked", None) is None for stmt in users)
    alone = [stmt for stmt in users if isinstance(stmt, Gemm)] == [gemm]
    turned = turned_product(gemm, {sums: transposed(sums)})
    return known and alone and not isinstance(chooser.product(turned, warps), str)


def with_turned(launch: Launch, gemm: Gemm) -> Launch:
    """The launch with a product computed transposed, and all that touches its sums turned with them."""
    turned = {gemm.c.buffer: transposed(gemm.c.buffer)}

    def rewrite(block: Block) -> list[Stmt]:
        return [_statement(stmt, gemm, turned) for stmt in block]

    return replace(launch, body=rewrite_blocks(launch.body, rewrite))


def _statement(stmt: Stmt, gemm: Gemm, turned: dict[Var, Var]) -> Stmt:
    sums = gemm.c.buffer
    if stmt is gemm:
        return turned_product(gemm, turned)
    if isinstance(stmt, Alloc):
        return replace(stmt, buffer=turned.get(stmt.buffer, stmt.buffer))
    if isinstance(stmt, Fill):
        return replace(stmt, dst=turned_region(stmt.dst, turned))
    loop = expand_copy(stmt) if isinstance(stmt, Copy) and sums in set(buffers(stmt)) else stmt
    if not isinstance(loop, Parallel):
        return loop
    return replace(loop, body=tuple(turned_elements(inner, turned) for inner in loop.body))
