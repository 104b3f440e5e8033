"""Products with few rows are computed transposed: ``C.T = B.T @ A.T``.

wgmma takes 64 rows at least and 8 columns: with 16 tokens and thousands of features the features had better
be its rows (16 x 14336 x 4096 on an H200: 29.9 us so, 35.0 with a tile of 64 rows that is mostly empty).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.wgmma import ROWS
from tilec.backends.cuda.matmul.match import Match, match
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.ir.exprs import transform
from tilec.ir.nodes import Alloc, Copy, Fill, Gemm, Launch, Parallel, Pipelined, Region, Stmt, Store
from tilec.lowering.passes.expand_copies import expand_copy
from tilec.lowering.rewrite import map_stmt

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def swapped(launch: Launch, few_rows: bool = False) -> Launch | None:
    """``launch`` with its product transposed; None where it is no product that can be, or (``few_rows``) has
    rows enough."""
    try:
        found = match(launch)
    except Unfit:
        return None  # whoever plans roles says why
    if not can_swap(found) or (few_rows and found.rows % (ROWS * found.warpgroups) == 0):
        return None
    turned = {alloc.buffer: _transposed(alloc.buffer) for alloc in found.fragments}
    return replace(launch, body=tuple(_statement(stmt, turned) for stmt in launch.body))


def can_swap(found: Match) -> bool:
    """Whether all that touches the sums is turned with them."""
    return found.guard is None and found.promotion is None


def _transposed(fragment: Var) -> Var:
    rows, columns = fragment.shape
    return tirx.decl_buffer(
        (columns, rows), str(fragment.dtype), name=str(fragment.name), scope=fragment.scope()
    )


def _statement(stmt: Stmt, turned: dict[Var, Var]) -> Stmt:
    if isinstance(stmt, Alloc):
        return replace(stmt, buffer=turned.get(stmt.buffer, stmt.buffer))
    if isinstance(stmt, Fill):
        return replace(stmt, dst=_region(stmt.dst, turned))
    if isinstance(stmt, Pipelined):
        return replace(stmt, body=tuple(_product(inner, turned) for inner in stmt.body))
    loop = expand_copy(stmt) if isinstance(stmt, Copy) else stmt
    return _loop(loop, turned) if isinstance(loop, Parallel) else stmt


def _region(region: Region, turned: dict[Var, Var]) -> Region:
    if region.buffer not in turned:
        return region
    return Region(turned[region.buffer], region.start[::-1], region.extent[::-1])


def _product(stmt: Stmt, turned: dict[Var, Var]) -> Stmt:
    if not isinstance(stmt, Gemm):
        return stmt
    return replace(
        stmt,
        a=stmt.b,
        b=stmt.a,
        c=_region(stmt.c, turned),
        trans_a=not stmt.trans_b,
        trans_b=not stmt.trans_a,
    )


def _loop(loop: Parallel, turned: dict[Var, Var]) -> Parallel:
    def visit(node: Expr) -> Expr | None:
        if isinstance(node, TensorLoad) and node.source in turned:
            return tirx.BufferLoad(turned[node.source], list(node.indices)[::-1])
        return None

    def inner(stmt: Stmt) -> Stmt:
        made = map_stmt(stmt, lambda expr: transform(expr, visit))
        if isinstance(made, Store) and made.buffer in turned:
            return replace(made, buffer=turned[made.buffer], indices=made.indices[::-1])
        return made

    return replace(
        loop, vars=loop.vars[::-1], extents=loop.extents[::-1], body=tuple(inner(stmt) for stmt in loop.body)
    )
