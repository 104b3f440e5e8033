"""Products of 8-bit floats on GPUs whose tensor cores do not have them are products of 16-bit floats."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.nodes import Alloc, Block, Copy, Gemm, Kernel, Launch, Region, Stmt
from tilec.lowering.cuda.mma import dtypes
from tilec.lowering.exprs import int_value
from tilec.lowering.passes import rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from tilec.targets import Target

#: The first compute capability whose mma.sync takes 8-bit floats.
_FIRST = 89


@dataclass(frozen=True)
class WidenOperands:
    """In: Gemm. Out: before compute capability 8.9, the operands of products of 8-bit floats are copied to
    float16 tiles, which hold all their values exactly."""

    name: str = "widen_operands"

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel without products that the target's tensor cores do not have."""
        assert target.gpu is not None
        if target.gpu.capability >= _FIRST:
            return kernel
        return rewrite_launches(kernel, _widened)


def _widened(launch: Launch) -> Launch:
    lines: list[str] = []

    def rewrite(block: Block) -> list[Stmt]:
        return [new for stmt in block for new in _statement(stmt, lines)]

    body = rewrite_blocks(launch.body, rewrite)
    return replace(launch, body=body, hints=(*launch.hints, *(("note", line) for line in lines)))


def _statement(stmt: Stmt, lines: list[str]) -> list[Stmt]:
    if not isinstance(stmt, Gemm) or not any(name.startswith("float8") for name in dtypes(stmt)[:2]):
        return [stmt]
    lines.append("8-bit floats of T.gemm are widened to float16: tensor cores take them from sm_89 on")
    before: list[Stmt] = []
    a, b = (_wide(region, stmt, before) for region in (stmt.a, stmt.b))
    return [*before, replace(stmt, a=a, b=b)]


def _wide(region: Region, gemm: Gemm, before: list[Stmt]) -> Region:
    """A float16 copy of an operand in shared memory."""
    if not str(region.buffer.dtype).startswith("float8"):
        return region
    shape = tuple(int_value(extent) or 1 for extent in region.extent[-2:])
    tile = tirx.decl_buffer(shape, "float16", name=f"{region.buffer.name}_wide", scope="shared.dyn")
    zero = tirx.const(0, "int32")
    whole = Region(tile, (zero, zero), shape)
    before += [Alloc(tile, loc=gemm.loc), Copy(region, whole, loc=gemm.loc)]
    return whole
