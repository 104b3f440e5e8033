"""Products of small floats with scales as products of what numbers and scales are together.

gemm_blockscaled(a, b, c, sfa, sfb, group=32)
->
for i, k: a_scaled[i, k] = a[i, k] * sfa[i, k // 32]
for k, j: b_scaled[k, j] = b[k, j] * sfb[j, k // 32]
gemm(a_scaled, b_scaled, c)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import gcd, prod
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import cast_to, int_value
from tilec.ir.nodes import (
    Alloc,
    Block,
    Gemm,
    Kernel,
    Launch,
    Parallel,
    Region,
    ScaledGemm,
    Stmt,
    Store,
    walk,
)
from tilec.ir.nodes.barriers import Group
from tilec.ir.roads import Loss, Road
from tilec.ir.small_floats import number, numbers_of, scale
from tilec.lowering.analysis.roads import road_of, with_roads
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.targets import Target

#: Why a target does not carry out such a product by an instruction of its own, in a launch whose blocks and
#: groups are of multiples of so many threads; a text: it has none at all.
Missed = Callable[[ScaledGemm, "Target", int], "Loss | str | None"]


def no_instruction(gemm: ScaledGemm, target: Target, threads: int) -> str:
    """Of targets without such instructions."""
    return f"{target.name} has no products with scales"


#: What holds every float4_e2m1fn, so that an instruction for 8-bit floats takes it.
_WIDER = "float8_e4m3fn"


@dataclass(frozen=True)
class ExpandScaled(Pass):
    """In: ScaledGemm. Out: those that the target has an instruction for, also where that takes 4-bit floats
    as 8-bit ones, which a loop writes to a shared tile; of each other one two loops that write the operands
    times their scales to shared tiles of ``dtype``, and a Gemm of these. Such a number has up to 8 bits of
    mantissa (4 of float8_e4m3fn times 4 of a scale), so bfloat16 and wider types hold it."""

    missed: Missed = no_instruction
    dtype: str = "bfloat16"

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with no product with scales but the target's own."""
        return rewrite_launches(kernel, lambda launch: _Expansion(self, target).run(launch))


class _Expansion:
    """The products of one launch."""

    def __init__(self, step: ExpandScaled, target: Target) -> None:
        self.step, self.target = step, target
        self.roads: list[Road] = []
        self.tiles: list[Stmt] = []
        self.threads = 0

    def run(self, launch: Launch) -> Launch:
        """The rewritten launch."""
        groups = (stmt.count for stmt in walk(launch.body) if isinstance(stmt, Group))
        self.threads = gcd(prod(launch.threads), *groups)
        body = rewrite_blocks(launch.body, self._block)
        return with_roads(replace(launch, body=(*self.tiles, *body)), self.roads)

    def _block(self, block: Block) -> list[Stmt]:
        return [new for stmt in block for new in self._stmt(stmt)]

    def _stmt(self, stmt: Stmt) -> list[Stmt]:
        if not isinstance(stmt, ScaledGemm):
            return [stmt]
        why = self.step.missed(stmt, self.target, self.threads)
        if why is None:
            return [stmt]
        wider = _wider(stmt)
        if self.step.missed(wider, self.target, self.threads) is None:
            return self._widened(stmt, wider, why)
        how = f"T.gemm_blockscaled multiplies {self.step.dtype} tiles of numbers times scales"
        self._say(stmt, how, why)
        return self._written_out(stmt)

    def _say(self, stmt: ScaledGemm, how: str, why: Loss | str) -> None:
        lost = why if isinstance(why, Loss) else None
        self.roads.append(road_of(stmt, "written out", how if lost else f"{how}: {why}", lost))

    def _widened(self, stmt: ScaledGemm, wider: ScaledGemm, why: Loss | str) -> list[Stmt]:
        """The product of wider operands behind the loops that write them."""
        self._say(stmt, f"T.gemm_blockscaled multiplies {_WIDER} tiles of 4-bit numbers", why)
        loops: list[Stmt] = []
        for old, new in ((stmt.a, wider.a), (stmt.b, wider.b)):
            if old is not new:
                self.tiles.append(Alloc(new.buffer, loc=stmt.loc))
                loops.append(_filled(stmt, new, partial(_number, old)))
        return [*loops, wider]

    def _written_out(self, stmt: ScaledGemm) -> list[Stmt]:
        """The product of operands that hold their scales, behind the loops that write them."""
        sides = ((stmt.a, stmt.sfa, stmt.trans_a), (stmt.b, stmt.sfb, not stmt.trans_b))
        loops, operands = [], []
        for numbers, scales, turned in sides:
            tile = _tile(numbers, self.step.dtype, "scaled")
            value = partial(_times_scale, stmt, numbers, scales, turned)
            self.tiles.append(Alloc(tile.buffer, loc=stmt.loc))
            loops.append(_filled(stmt, tile, value))
            operands.append(tile)
        a, b = operands
        product = Gemm(a, b, stmt.c, stmt.trans_a, stmt.trans_b, stmt.clear, stmt.policy, loc=stmt.loc)
        return [*loops, product]


def _wider(stmt: ScaledGemm) -> ScaledGemm:
    """The product with 8-bit operands in tiles of their own in place of 4-bit ones."""
    a, b = (
        region if numbers_of(region) == 1 else _tile(region, _WIDER, "wider") for region in (stmt.a, stmt.b)
    )
    return replace(stmt, a=a, b=b)


def _tile(numbers: Region, dtype: str, what: str) -> Region:
    """A tile for the numbers of a region."""
    rows, columns = (int_value(extent) or 0 for extent in numbers.extent[-2:])
    shape = (rows, columns * numbers_of(numbers))
    buffer = tirx.decl_buffer(shape, dtype, f"{numbers.buffer.name}_{what}", scope="shared.dyn")
    return Region(buffer, (tirx.const(0, "int32"),) * 2, shape)


def _filled(stmt: ScaledGemm, tile: Region, value: Callable[[Expr, Expr], Expr]) -> Parallel:
    """A loop that writes every element of a tile."""
    i, j = tirx.Var("i", "int32"), tirx.Var("j", "int32")
    held = cast_to(value(i, j), str(tile.buffer.dtype))
    return Parallel((i, j), tile.extent, (Store(tile.buffer, (i, j), held, loc=stmt.loc),), loc=stmt.loc)


def _number(numbers: Region, i: Expr, j: Expr) -> Expr:
    *lead, first, last = numbers.start
    return number(numbers, (*lead, first + i, last * tirx.const(numbers_of(numbers), "int32") + j))


def _times_scale(stmt: ScaledGemm, numbers: Region, scales: Region, turned: bool, i: Expr, j: Expr) -> Expr:
    """A number times its scale as float32; ``turned``: K is the first axis of the numbers."""
    row, k = (j, i) if turned else (i, j)
    *lead, first, last = scales.start
    by = scale(scales, (*lead, first + row, last + tirx.floordiv(k, tirx.const(stmt.group, "int32"))))
    return cast_to(_number(numbers, i, j), "float32") * by
