"""First operands that threads make in each trip of a loop stay in registers: products take them from there.

    for k: T = float16(raw[k]); C += T B[k]    with T in shared memory    ->    with T in a fragment

A tile in shared memory is written and read once more, and all threads meet before and behind it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import is_whole, static_extents
from tilec.backends.cuda.analysis.pipelines.versions import with_buffers
from tilec.backends.cuda.analysis.products.wgmma import Chooser
from tilec.backends.cuda.statement_roles.operands.alternate_operands import loops_of_groups, made_in
from tilec.backends.cuda.statement_roles.split.registers import fits_registers
from tilec.ir.nodes import Alloc, Block, For, Gemm, Launch, Pipelined, Stmt
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Var

_NOTE = "{} stays in registers"


class HoldOperands(LaunchPass):
    """In: loops of consumers that fill a whole shared tile in each trip for one product of wgmma. Out: such a
    tile of 16 bits that is the product's first operand, rows along M, is a fragment."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its fragments."""
        chooser, notes = Chooser(launch, None), []
        found = [
            tile
            for group, loop in loops_of_groups(launch)
            if fits_registers(loop.body, group)
            for tile in made_in(loop, group, launch, chooser)
            if is_first(tile, loop)
        ]
        for tile in found:
            launch = _held(launch, tile)
            notes.append(_NOTE.format(tile.name))
        return with_notes(launch, notes) if notes else launch


def is_first(tile: Var, loop: For | Pipelined) -> bool:
    """Whether a tile is the first operand of one product as it stands."""
    users = [stmt for stmt in loop.body if isinstance(stmt, Gemm) and tile in (stmt.a.buffer, stmt.b.buffer)]
    return (
        len(users) == 1
        and users[0].a.buffer.same_as(tile)
        and not users[0].b.buffer.same_as(tile)
        and is_whole(users[0].a)
        and not users[0].trans_a
        and element_bytes(str(tile.dtype)) == 2
    )


def _held(launch: Launch, tile: Var) -> Launch:
    """The launch with a tile as a fragment."""
    made = tirx.decl_buffer(
        static_extents(tile), str(tile.dtype), name=str(tile.name), scope="local.fragment"
    )

    def rewrite(block: Block) -> list[Stmt]:
        is_own = [isinstance(stmt, Alloc) and stmt.buffer.same_as(tile) for stmt in block]
        return [Alloc(made) if own else stmt for own, stmt in zip(is_own, block, strict=True)]

    return replace(launch, body=rewrite_blocks(with_buffers(launch.body, {tile: made}), rewrite))
