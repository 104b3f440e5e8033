"""Quotients by run-time values that all elements of a loop share have names in front of it.

Compilers compute a quotient under each of a thread's conditions again: each addition of two floats of a 128 x
128 tile, at places that quotients tell, was 133 instructions on sm_90a, and is 10. H200, 51 us for two such
tiles of a block, and 15.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import dtype_of, loads, same, transform, uses
from tilec.ir.nodes import Bind, Block, Parallel, Stmt, walk
from tilec.ir.traits import defined
from tilec.lowering.analysis.facts import is_quotient
from tilec.lowering.passes.base import BlockPass
from tilec.lowering.rewrite import map_stmt

if TYPE_CHECKING:
    from collections.abc import Collection

    from tvm.ir import Expr, Var


class NameQuotients(BlockPass):
    """In: loops over elements that use quotients and remainders by run-time values. Out: those that neither
    the loop's names nor what it reads changes are bound in front of it."""

    def block(self, block: Block) -> list[Stmt]:
        """The block with names."""
        return [made for stmt in block for made in _named(stmt)]


def _named(stmt: Stmt) -> list[Stmt]:
    """A loop behind its names; any other statement alone."""
    if not isinstance(stmt, Parallel):
        return [stmt]
    inner = [var for each in walk((stmt,)) for var in defined(each)]
    names: list[tuple[Var, Expr]] = []

    def visit(node: Expr) -> Expr | None:
        if not _is_shared(node, inner):
            return None
        known = next((var for var, value in names if same(value, node)), None)
        if known is None:
            known = tirx.Var("quotient" if isinstance(node, tirx.FloorDiv) else "remainder", dtype_of(node))
            names.append((known, node))
        return known

    made = map_stmt(stmt, lambda expr: transform(expr, visit))
    return [*(Bind(var, value) for var, value in names), made]


def _is_shared(node: Expr, inner: Collection[Var]) -> bool:
    """Whether a node is a quotient or a remainder by a run-time value that is one for all of a loop."""
    return is_quotient(node) and not uses(node, inner) and next(loads(node), None) is None
