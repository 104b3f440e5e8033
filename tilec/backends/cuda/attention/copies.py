"""A second copy of statements, with names of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from tvm import tirx

from tilec.ir.nodes import Bind, Block, Stmt, children, walk
from tilec.lowering.exprs import dtype_of, substitute
from tilec.lowering.passes.base import with_children
from tilec.lowering.rewrite import map_block

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def copied(block: Block, values: Mapping[Var, Expr]) -> Block:
    """``block`` with variables replaced, and new variables for all that it defines."""
    fresh: dict[Var, Var] = {}
    for stmt in walk(block):
        for var in _defined(stmt):
            fresh[var] = tirx.Var(var.name, dtype_of(var))
    everything = {**values, **fresh}
    return _named(map_block(block, lambda expr: substitute(expr, everything)), fresh)


def _defined(stmt: Stmt) -> tuple[Var, ...]:
    if isinstance(stmt, Bind):
        return (stmt.var,)
    named = {item.name for item in fields(stmt)}
    single = (stmt.var,) if "var" in named else ()  # type: ignore[attr-defined]
    rows = (stmt.row,) if "row" in named else ()  # type: ignore[attr-defined]
    return (*single, *rows, *(stmt.vars if "vars" in named else ()))  # type: ignore[attr-defined]


def _named(block: Block, fresh: Mapping[Var, Var]) -> Block:
    """``block`` with definitions renamed."""
    return tuple(_renamed(stmt, fresh) for stmt in block)


def _renamed(stmt: Stmt, fresh: Mapping[Var, Var]) -> Stmt:
    inner = children(stmt)
    made = with_children(stmt, [_named(part, fresh) for part in inner]) if inner else stmt
    named = {item.name for item in fields(made)}
    changes: dict[str, Any] = {}
    if "var" in named:
        changes["var"] = fresh.get(made.var, made.var)  # type: ignore[attr-defined]
    if "vars" in named:
        changes["vars"] = tuple(fresh.get(var, var) for var in made.vars)  # type: ignore[attr-defined]
    return replace(made, **changes) if changes else made
