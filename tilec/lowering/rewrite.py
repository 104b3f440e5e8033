"""Rewriting the expressions and buffers of whole statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.ir import Expr, TensorLoad

from tilec.ir.nodes import Block, Stmt
from tilec.lowering.exprs import substitute, transform

if TYPE_CHECKING:
    from tvm.ir import Var

#: Fields that name what a statement defines or touches, rather than a value.
_NAMES = frozenset({"var", "vars", "block_vars", "thread_vars", "buffer", "loc", "prev", "registers"})


def map_block(block: Block, visit: Callable[[Expr], Expr]) -> Block:
    """``block`` with every value in it, at any depth, replaced by ``visit`` of it."""
    return tuple(map_stmt(stmt, visit) for stmt in block)


def map_stmt(stmt: Stmt, visit: Callable[[Expr], Expr]) -> Stmt:
    """One statement with every value in it, at any depth, replaced by ``visit`` of it."""
    changes = {
        item.name: _mapped(getattr(stmt, item.name), visit)
        for item in fields(stmt)
        if item.name not in _NAMES
    }
    return replace(stmt, **changes)


def _mapped(value: Any, visit: Callable[[Expr], Expr]) -> Any:
    if isinstance(value, Stmt):
        return map_stmt(value, visit)
    if isinstance(value, Expr):
        return value if tirx.is_buffer_var(value) else visit(value)
    if isinstance(value, tuple):
        return tuple(_mapped(part, visit) for part in value)
    if (
        is_dataclass(value)
        and not isinstance(value, type)
        and any(item.name == "buffer" for item in fields(value))
    ):
        changes = {
            item.name: _mapped(getattr(value, item.name), visit)
            for item in fields(value)
            if item.name != "buffer"
        }
        return replace(value, **changes)
    return value


def rename(block: Block, values: Mapping[Var, Expr]) -> Block:
    """``block`` with variables replaced."""
    return map_block(block, lambda expr: substitute(expr, values))


def read_from(expr: Expr, old: Var, new: Var, indices: tuple[Expr, ...]) -> Expr:
    """``expr`` with every read of buffer ``old`` replaced by ``new[indices]``."""

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, TensorLoad) and node.source.same_as(old):
            return tirx.BufferLoad(new, list(indices))
        return None

    return transform(expr, visit)
