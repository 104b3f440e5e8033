"""Statements over other variables and buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.ir import Expr, TensorLoad, Var

from tilec.ir.exprs import dtype_of, transform
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.nodes import (
    Alloc,
    Atomic,
    Bind,
    Block,
    For,
    Parallel,
    Pipelined,
    Region,
    Stmt,
    walk,
)

if TYPE_CHECKING:
    from tvm.ir import Var as Buffer


def renamed(block: Block, names: Mapping[Var, Any]) -> Block:
    """``block`` with variables replaced by expressions and buffers by buffers, also where they are
    defined."""
    return tuple(_value(stmt, names) for stmt in block) if names else block


def _value(value: Any, names: Mapping[Var, Any]) -> Any:
    if isinstance(value, (Stmt, Region)):
        new = {
            item.name: _value(getattr(value, item.name), names)
            for item in fields(value)
            if item.name != "loc"
        }
        return replace(value, **new)
    if isinstance(value, tuple):
        return tuple(_value(part, names) for part in value)
    if isinstance(value, Var):
        return names.get(value, value)
    return transform(value, lambda node: _node(node, names)) if isinstance(value, Expr) else value


def _node(node: Expr, names: Mapping[Var, Any]) -> Expr | None:
    if isinstance(node, Var):
        return names.get(node)
    if isinstance(node, TensorLoad) and node.source in names:
        return tirx.BufferLoad(names[node.source], [_value(index, names) for index in node.indices])
    return None


def expressions(stmt: Stmt) -> Iterator[Expr]:
    """The expressions of a statement itself, those of its regions included."""
    for item in fields(stmt):
        if item.name not in ("body", "then", "orelse", "loc", "hints", "roads", "notes"):
            yield from _parts(getattr(stmt, item.name))


def _parts(value: Any) -> Iterator[Expr]:
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _parts(part)
    elif is_dataclass(value) and not isinstance(value, (Stmt, type)):
        for item in fields(value):
            yield from _parts(getattr(value, item.name))


def mentioned(stmt: Stmt) -> set[Buffer]:
    """The variables and buffers that a statement itself names or defines."""
    found: set[Buffer] = set()
    for expr in expressions(stmt):
        for node in walk_expr(expr):
            if isinstance(node, Var):
                found.add(node)
            elif isinstance(node, TensorLoad):
                found.add(node.source)
    return found


def copied(block: Block) -> Block:
    """``block`` with new variables and buffers for all that it defines, to stand beside itself."""
    return renamed(block, {var: _like(var) for stmt in walk(block) for var in _defined(stmt)})


def _defined(stmt: Stmt) -> Iterator[Var]:
    """What a statement defines for those behind it or inside."""
    if isinstance(stmt, (Bind, For, Pipelined)):
        yield stmt.var
    elif isinstance(stmt, Parallel):
        yield from stmt.vars
    elif isinstance(stmt, Alloc):
        yield stmt.buffer
    elif isinstance(stmt, Atomic) and stmt.prev is not None:
        yield stmt.prev
    yield from stmt.defines


def _like(var: Var) -> Var:
    if not tirx.is_buffer_var(var):
        return tirx.Var(str(var.name), dtype_of(var))
    return tirx.decl_buffer(var.shape, str(var.dtype), str(var.name), scope=str(var.scope()))
