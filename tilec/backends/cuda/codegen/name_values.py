"""Names inside of values as names in front of the statement.

    a[0] = let t = b[0] / c in t * t    ->    t = b[0] / c; a[0] = t * t

TVM's generator of C writes the value of a name inside of a value out at each of its uses: values
that each read the one in front twice would double with every link.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Var

from tilec.ir.exprs import LOGIC, choice_of, operands, over, substitute, walk
from tilec.lowering.emission.body_passes import body_pass

if TYPE_CHECKING:
    from tvm.ir import Expr


def name_values() -> Any:
    """The pass of functions of TVM that does so."""
    rewritten = [
        (tirx.BufferStore, _store),
        (tirx.Bind, lambda stmt: _with_names(stmt, stmt.value, lambda value: tirx.Bind(stmt.var, value))),
        (tirx.Evaluate, lambda stmt: _with_names(stmt, stmt.value, tirx.Evaluate)),
        (tirx.IfThenElse, _branch),
    ]
    return body_pass("NameValues", lambda function: rewritten if _has_names(function.body) else [])


def _has_names(body: tirx.Stmt) -> bool:
    """Whether some value of a body has names inside: few have, and TVM looks sooner than Python does."""
    return tvm_ffi.structural_walk(body, [(tirx.Let, tvm_ffi.VisitInterrupt)]) is not None


def _store(stmt: tirx.BufferStore) -> tirx.Stmt:
    return _with_names(
        stmt, stmt.value, lambda value: tirx.BufferStore(stmt.buffer, value, list(stmt.indices))
    )


def _branch(stmt: tirx.IfThenElse) -> tirx.Stmt:
    return _with_names(
        stmt, stmt.condition, lambda test: tirx.IfThenElse(test, stmt.then_case, stmt.else_case)
    )


def _with_names(stmt: tirx.Stmt, value: Expr, made: Callable[[Expr], tirx.Stmt]) -> tirx.Stmt:
    """``stmt``, of which ``value`` is a part, with the names of that in front; ``made`` of another value."""
    if not any(type(node) is tirx.Let for node in walk(value)):
        return stmt
    names: list[tirx.Stmt] = []
    bare = _bare(value, {}, names)
    return tirx.SeqStmt([*names, made(bare)]) if names else stmt


def _bare(expr: Expr, known: dict[Var, Var], names: list[tirx.Stmt]) -> Expr:
    """``expr`` without the names in it, which become ``names``, new ones for each use of an expression. What
    may not be computed at all keeps its names."""
    if isinstance(expr, Var):
        return known.get(expr, expr)
    if isinstance(expr, tirx.Let):
        value, var = _bare(expr.value, known, names), tirx.Var(str(expr.var.name), str(expr.var.ty.dtype))
        names.append(tirx.Bind(var, value))
        return _bare(expr.body, {**known, expr.var: var}, names)
    old = operands(expr)
    always = 1 if _may_skip(expr) else len(old)
    new = [_bare(part, known, names) for part in old[:always]]
    new += [substitute(part, known) for part in old[always:]]
    return over(expr, old, tuple(new))


def _may_skip(expr: Expr) -> bool:
    """Whether C computes all but the first operand in some cases alone."""
    return isinstance(expr, LOGIC) or choice_of(expr) is not None
