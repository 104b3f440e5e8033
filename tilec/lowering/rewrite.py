"""Rewriting the expressions and buffers of whole statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Expr, TensorLoad

from tilec.ir.exprs import same, substitute, transform
from tilec.ir.traits import Rewriter

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.ir.nodes import Block, Stmt


class _Mapped(Rewriter):
    def __init__(self, visit: Callable[[Expr], Expr]) -> None:
        super().__init__()
        self._visit = visit

    def expr(self, expr: Expr) -> Expr:
        """What the caller makes of a value."""
        return self._visit(expr)


def map_block(block: Block, visit: Callable[[Expr], Expr]) -> Block:
    """``block`` with every value in it, at any depth, replaced by ``visit`` of it."""
    return _Mapped(visit).block(block)


def map_stmt(stmt: Stmt, visit: Callable[[Expr], Expr]) -> Stmt:
    """One statement with every value in it, at any depth, replaced by ``visit`` of it."""
    return _Mapped(visit).stmt(stmt)


def rename(block: Block, values: Mapping[Var, Expr]) -> Block:
    """``block`` with variables replaced."""
    return map_block(block, lambda expr: substitute(expr, values))


def with_elements(stmt: Stmt, made: Sequence[tuple[TensorLoad, Expr]]) -> Stmt:
    """``stmt`` with other values in the place of some elements that it reads."""

    def visit(node: Expr) -> Expr | None:
        return next((value for load, value in made if same(load, node)), None)

    return map_stmt(stmt, lambda expr: transform(expr, visit))


def read_from(expr: Expr, old: Var, new: Var, indices: tuple[Expr, ...]) -> Expr:
    """``expr`` with every read of buffer ``old`` replaced by ``new[indices]``."""

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, TensorLoad) and node.source.same_as(old):
            return tirx.BufferLoad(new, list(indices))
        return None

    return transform(expr, visit)
