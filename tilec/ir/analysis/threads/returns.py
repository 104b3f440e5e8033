"""Threads that end early, as branches: what a `Return` skips stands under conditions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tvm import tirx

from tilec.ir import nodes as ir
from tilec.ir.nodes.threads import Return

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def without_return(body: ir.Block) -> ir.Block:
    """``body`` with every `Return` replaced. Unless each ends a branch of its own, a variable says that one
    was met."""
    plain = _plain(body)
    if plain is not None:
        return plain
    ended = tirx.decl_buffer((1,), "bool", "ended", scope="local.var")
    return (ir.Alloc(ended), *_flagged(body, ended, False))


def has_return(body: ir.Block) -> bool:
    """Whether a thread may end in ``body``."""
    return any(isinstance(stmt, Return) for stmt in ir.walk(body))


def _plain(body: ir.Block) -> ir.Block | None:
    """``body`` where each `Return` is all that one side of a branch does: what follows goes to the other
    side. None for any other body."""
    for position, stmt in enumerate(body):
        if isinstance(stmt, Return):
            return body[:position]
        if not has_return((stmt,)):
            continue
        if not isinstance(stmt, ir.If) or has_return(stmt.then) == has_return(stmt.orelse):
            return None
        ends, other, stays = stmt.then, stmt.orelse, tirx.Not(stmt.cond)
        if has_return(other):
            ends, other, stays = other, ends, stmt.cond
        rest = _plain((*other, *body[position + 1 :]))
        if len(ends) != 1 or not isinstance(ends[0], Return) or rest is None:
            return None
        return (*body[:position], *((ir.Rest(stays, rest, loc=stmt.loc),) if rest else ()))
    return body


def _flagged(body: ir.Block, ended: Var, in_loop: bool) -> ir.Block:
    for position, stmt in enumerate(body):
        if isinstance(stmt, Return):
            mark = ir.Store(ended, (_zero(),), tirx.const(True, "bool"), loc=stmt.loc)
            return (*body[:position], mark, *((ir.Break(loc=stmt.loc),) if in_loop else ()))
        if not has_return((stmt,)):
            continue
        inside = in_loop or isinstance(stmt, ir.LOOPS)
        blocks = [_flagged(block, ended, inside) for block in ir.children(stmt)]
        rest = _flagged(body[position + 1 :], ended, in_loop)
        return (*body[:position], _over(stmt, blocks), *_after(stmt, rest, ended, in_loop))
    return body


def _after(stmt: ir.Stmt, rest: ir.Block, ended: Var, in_loop: bool) -> ir.Block:
    """What follows a statement in which threads may end."""
    met: Expr = tirx.BufferLoad(ended, [_zero()])
    if in_loop and isinstance(stmt, ir.LOOPS):
        return (ir.If(met, (ir.Break(loc=stmt.loc),), loc=stmt.loc), *rest)
    if in_loop or not rest:
        return rest
    return (ir.Rest(tirx.Not(met), rest, loc=stmt.loc),)


def _over(stmt: Any, blocks: list[ir.Block]) -> ir.Stmt:
    if isinstance(stmt, ir.If):
        return replace(stmt, then=blocks[0], orelse=blocks[1])
    changed: ir.Stmt = replace(stmt, body=blocks[0])
    return changed


def _zero() -> Expr:
    return tirx.const(0, "int32")
