"""Products of small floats with scales as products of what numbers and scales are together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Block, Gemm, Kernel, Launch, Parallel, Region, ScaledGemm, Stmt, Store
from tilec.ir.roads import Loss, Road
from tilec.ir.small_floats import number, numbers_of, scale
from tilec.lowering.analysis.roads import road_of, with_roads
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches
from tilec.lowering.passes.expand_copies import cast_to

if TYPE_CHECKING:
    from tilec.targets import Target

#: Why a target does not carry out such a product by an instruction of its own; a text: it has none at all.
Missed = Callable[[ScaledGemm, "Target"], "Loss | str | None"]


def no_instruction(gemm: ScaledGemm, target: Target) -> str:
    """Of targets without such instructions."""
    return f"{target.name} has no products with scales"


@dataclass(frozen=True)
class ExpandScaled(Pass):
    """In: ScaledGemm. Out: those that the target has an instruction for; of each other one two loops that
    write the operands times their scales to shared tiles of ``dtype``, and a Gemm of these. Such a number has
    up to 8 bits of mantissa (4 of float8_e4m3fn times 4 of a scale), so bfloat16 and wider types hold it."""

    missed: Missed = no_instruction
    dtype: str = "bfloat16"

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with no product with scales but the target's own."""
        return rewrite_launches(kernel, partial(self._launch, target))

    def _launch(self, target: Target, launch: Launch) -> Launch:
        roads: list[Road] = []
        tiles: list[Stmt] = []

        def block(old: Block) -> list[Stmt]:
            return [new for stmt in old for new in self._stmt(stmt, target, roads, tiles)]

        body = rewrite_blocks(launch.body, block)
        return with_roads(replace(launch, body=(*tiles, *body)), roads)

    def _stmt(self, stmt: Stmt, target: Target, roads: list[Road], tiles: list[Stmt]) -> list[Stmt]:
        if not isinstance(stmt, ScaledGemm):
            return [stmt]
        why = self.missed(stmt, target)
        if why is None:
            return [stmt]
        how = f"T.gemm_blockscaled multiplies {self.dtype} tiles of numbers times scales"
        lost = why if isinstance(why, Loss) else None
        roads.append(road_of(stmt, "written out", how if lost else f"{how}: {why}", lost))
        return self._expanded(stmt, tiles)

    def _expanded(self, stmt: ScaledGemm, tiles: list[Stmt]) -> list[Stmt]:
        sides = ((stmt.a, stmt.sfa, stmt.trans_a), (stmt.b, stmt.sfb, not stmt.trans_b))
        loops, operands = [], []
        for numbers, scales, turned in sides:
            tile = self._tile(numbers)
            tiles.append(Alloc(tile.buffer, loc=stmt.loc))
            loops.append(_filled(stmt, tile, numbers, scales, turned))
            operands.append(tile)
        a, b = operands
        product = Gemm(a, b, stmt.c, stmt.trans_a, stmt.trans_b, stmt.clear, stmt.policy, loc=stmt.loc)
        return [*loops, product]

    def _tile(self, numbers: Region) -> Region:
        """A tile for the numbers of a region."""
        rows, columns = (int_value(extent) or 0 for extent in numbers.extent[-2:])
        shape = (rows, columns * numbers_of(numbers))
        name = f"{numbers.buffer.name}_scaled"
        buffer = tirx.decl_buffer(shape, self.dtype, name=name, scope="shared.dyn")
        return Region(buffer, (tirx.const(0, "int32"),) * 2, shape)


def _filled(stmt: ScaledGemm, tile: Region, numbers: Region, scales: Region, turned: bool) -> Parallel:
    """Each number times its scale; ``turned``: K is the first axis of the numbers."""
    i, j = tirx.Var("i", "int32"), tirx.Var("j", "int32")
    row, k = (j, i) if turned else (i, j)
    *lead, first, last = numbers.start
    value = number(numbers, (*lead, first + i, last * tirx.const(numbers_of(numbers), "int32") + j))
    *lead, first, last = scales.start
    by = scale(scales, (*lead, first + row, last + tirx.floordiv(k, tirx.const(stmt.group, "int32"))))
    held = cast_to(cast_to(value, "float32") * by, str(tile.buffer.dtype))
    return Parallel((i, j), tile.extent, (Store(tile.buffer, (i, j), held, loc=stmt.loc),), loc=stmt.loc)
