"""Products whose second operand threads make are computed transposed, so that it can stay in registers.

for k: W = float16(raw[k]); C += A[k] W^T    ->    for k: W = float16(raw[k]); C^T += W A[k]^T
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.tiles import is_whole
from tilec.backends.cuda.analysis.layouts.turned_sums import turned_product, with_transposed
from tilec.backends.cuda.analysis.products.wgmma import Chooser
from tilec.backends.cuda.statement_roles.operands.alternate_operands import loops_of_groups, made_in
from tilec.ir.nodes import Alloc, Copy, Fill, For, Gemm, Launch, Parallel, Pipelined, walk
from tilec.ir.nodes.barriers import WARP
from tilec.ir.traits import buffers
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import LaunchPass

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
        chooser = Chooser(launch, None)
        found = [
            gemm
            for group, loop in loops_of_groups(launch)
            for tile in made_in(loop, group, launch, chooser)
            for gemm in second_of(tile, loop)
            if can_turn(gemm, launch, chooser, group.count // WARP)
        ]
        for gemm in found:
            launch = with_transposed(launch, [gemm.c.buffer])
        return with_notes(launch, [NOTE.format(gemm.b.buffer.name) for gemm in found]) if found else launch


def second_of(tile: Var, loop: For | Pipelined) -> list[Gemm]:
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
    return known and alone and chooser.takes(turned_product(gemm), warps)
