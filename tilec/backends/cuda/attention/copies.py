"""A second copy of statements, with names of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.analysis.renaming import renamed
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import Alloc, walk
from tilec.ir.traits import defined

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Block


def copied(block: Block, values: Mapping[Var, Expr]) -> Block:
    """``block`` with variables replaced, and new variables for all that it defines; buffers stay."""
    names = [var for stmt in walk(block) if not isinstance(stmt, Alloc) for var in defined(stmt)]
    fresh = {var: tirx.Var(var.name, dtype_of(var)) for var in names}
    return renamed(block, {**values, **fresh})
