"""Statements over other variables and buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.ir import Expr, TensorLoad, Var

from tilec.ir.exprs import as_expr, dtype_of, transform
from tilec.ir.stmt import walk
from tilec.ir.traits import Rewriter, defined

if TYPE_CHECKING:
    from tilec.ir.nodes import For
    from tilec.ir.stmt import Block


def renamed(block: Block, names: Mapping[Var, Any]) -> Block:
    """``block`` as `Renaming` has it."""
    return Renaming(names).block(block) if names else block


def renamed_value(expr: Expr, names: Mapping[Var, Any]) -> Expr:
    """``expr`` with variables replaced by expressions and buffers by buffers."""
    return Renaming(names).expr(expr) if names else expr


class Renaming(Rewriter):
    """Statements in which variables are the expressions, and buffers the buffers, that ``names`` gives them,
    also where they are defined."""

    def __init__(self, names: Mapping[Var, Any]) -> None:
        super().__init__()
        self._names = names

    def expr(self, expr: Expr) -> Expr:
        """With the names in it replaced."""
        return transform(expr, self._node)

    def buffer(self, buffer: Var) -> Var:
        """The one that takes its part."""
        return self._names.get(buffer, buffer)

    def defined(self, var: Var) -> Var:
        """The one that takes its part."""
        return self._names.get(var, var)

    def _node(self, node: Expr) -> Expr | None:
        if isinstance(node, Var):
            return self._names.get(node)
        if isinstance(node, TensorLoad) and node.source in self._names:
            return tirx.BufferLoad(self._names[node.source], [self.expr(index) for index in node.indices])
        return None


def copied(block: Block) -> Block:
    """``block`` with new variables and buffers for all that it defines, to stand beside itself."""
    return renamed(block, {var: like(var) for stmt in walk(block) for var in defined(stmt)})


def in_trip(loop: For, trip: Expr | int) -> Block:
    """A copy of the body of ``loop`` where its variable is ``trip``."""
    return renamed(copied(loop.body), {loop.var: as_expr(trip, dtype_of(loop.var))})


def like(var: Var) -> Var:
    """Another variable or buffer of the same name and type."""
    if not tirx.is_buffer_var(var):
        return tirx.Var(str(var.name), dtype_of(var))
    return tirx.decl_buffer(var.shape, str(var.dtype), str(var.name), scope=str(var.scope()))
