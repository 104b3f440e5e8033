"""Statements over fragments that hold a matrix transposed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.ir.exprs import transform
from tilec.ir.nodes import Gemm, Region, Stmt, Store
from tilec.lowering.rewrite import map_stmt

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def transposed(fragment: Var) -> Var:
    """A fragment for a matrix transposed."""
    rows, columns = fragment.shape
    return tirx.decl_buffer(
        (columns, rows), str(fragment.dtype), name=str(fragment.name), scope=fragment.scope()
    )


def turned_region(region: Region, turned: Mapping[Var, Var]) -> Region:
    """A region of a matrix where it lies transposed."""
    if region.buffer not in turned:
        return region
    return Region(turned[region.buffer], region.start[::-1], region.extent[::-1])


def turned_product(stmt: Gemm, turned: Mapping[Var, Var]) -> Gemm:
    """A product whose sums are transposed: ``C.T = B.T @ A.T``."""
    return replace(
        stmt,
        a=stmt.b,
        b=stmt.a,
        c=turned_region(stmt.c, turned),
        trans_a=not stmt.trans_b,
        trans_b=not stmt.trans_a,
    )


def turned_elements(stmt: Stmt, turned: Mapping[Var, Var]) -> Stmt:
    """A statement that reads and writes elements at their transposed places."""

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, TensorLoad) and node.source in turned:
            return tirx.BufferLoad(turned[node.source], list(node.indices)[::-1])
        return None

    made = map_stmt(stmt, lambda expr: transform(expr, visit))
    if isinstance(made, Store) and made.buffer in turned:
        return replace(made, buffer=turned[made.buffer], indices=made.indices[::-1])
    return made
