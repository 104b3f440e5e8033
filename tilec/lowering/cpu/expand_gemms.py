"""Gemm as plain loops, for products that no microkernel took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.nodes import Block, Fill, For, Gemm, If, Kernel, Parallel, Region, Stmt, Store
from tilec.lowering.cpu.expand_copies import add, cast_to, expand_fill
from tilec.lowering.exprs import dtype_of, int_value
from tilec.lowering.passes import rewrite_launch_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target


@dataclass(frozen=True)
class ExpandGemms:
    """In: Gemm. Out: none of them; each is a clear (where it has one) and loops over rows, K and columns, the
    innermost one along the rows of ``b`` (along K where ``b`` is transposed)."""

    name: str = "expand_gemms"

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel without Gemm."""
        return rewrite_launch_blocks(kernel, _expand_block)


def _expand_block(block: Block) -> list[Stmt]:
    return [new for stmt in block for new in (_expand(stmt) if isinstance(stmt, Gemm) else [stmt])]


def _expand(stmt: Gemm) -> list[Stmt]:
    dtype = str(stmt.c.buffer.dtype)
    depth = stmt.a.extent[-2 if stmt.trans_a else -1]
    rows, cols = stmt.c.extent[-2:]
    i, j, k = (_variable(name, extent) for name, extent in (("i", rows), ("j", cols), ("k", depth)))
    a = _element(stmt.a, (k, i) if stmt.trans_a else (i, k), dtype)
    b = _element(stmt.b, (j, k) if stmt.trans_b else (k, j), dtype)
    target = _indices(stmt.c, (i, j))
    old = tirx.BufferLoad(stmt.c.buffer, list(target))
    store = Store(stmt.c.buffer, target, tirx.Add(old, tirx.Mul(a, b)), loc=stmt.loc)
    order = ((j, cols), (k, depth)) if stmt.trans_b else ((k, depth), (j, cols))
    (outer, outer_extent), (inner, inner_extent) = order
    lanes = Parallel((inner,), (inner_extent,), (store,), loc=stmt.loc)
    body = _serial(i, rows, (_serial(outer, outer_extent, (lanes,), stmt),), stmt)
    return [*_clear(stmt, dtype), body]


def _clear(stmt: Gemm, dtype: str) -> list[Stmt]:
    known = int_value(stmt.clear)
    if known == 0:
        return []
    fill = expand_fill(Fill(stmt.c, tirx.const(0, dtype), loc=stmt.loc))
    return [fill] if known else [If(stmt.clear, (fill,), loc=stmt.loc)]


def _variable(name: str, extent: int | Expr) -> Var:
    return tirx.Var(name, "int32" if isinstance(extent, int) else dtype_of(extent))


def _indices(region: Region, last: tuple[Var, Var]) -> tuple[Expr, ...]:
    starts = region.start
    return (*starts[:-2], add(starts[-2], last[0]), add(starts[-1], last[1]))


def _element(region: Region, last: tuple[Var, Var], dtype: str) -> Expr:
    return cast_to(tirx.BufferLoad(region.buffer, list(_indices(region, last))), dtype)


def _serial(var: Var, extent: int | Expr, body: Block, origin: Stmt) -> Stmt:
    start, step = (tirx.const(value, dtype_of(var)) for value in (0, 1))
    stop = tirx.const(extent, dtype_of(var)) if isinstance(extent, int) else extent
    return For("serial", var, start, stop, step, body, loc=origin.loc)
