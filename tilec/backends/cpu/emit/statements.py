"""Tile IR statements as TIR: `emit` has one implementation per statement type.

``emit(stmt, ctx)`` returns the TIR statement, or None where nothing is left to do. A module that brings its
own statement registers an implementation with ``@emit.register(Class)``.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.access import store_element
from tilec.backends.cpu.emit.lanes import NotVectorisable
from tilec.backends.cpu.emit.memory import allocate
from tilec.backends.cpu.emit.numbers import stays_number
from tilec.backends.cpu.emit.speculate import is_predicable
from tilec.errors import CompileError
from tilec.ir.foreign import is_foreign, parts
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    If,
    Stmt,
    Store,
)
from tilec.ir.places import place_of
from tilec.lowering.emission.parameters import declare_at_address
from tilec.lowering.emission.statements import decided, emitted, learn_binding, sequence
from tilec.lowering.emission.storage import decode, encode, lanes_of
from tilec.lowering.exprs import conjuncts, dtype_of, int_value

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext


@singledispatch
def emit(stmt: Stmt, ctx: LaneContext) -> tirx.Stmt | None:
    """The TIR of one statement."""
    raise CompileError(f"no CPU code for the statement {type(stmt).__name__}", place=place_of(stmt))


def emit_block(block: Block, ctx: LaneContext) -> tirx.Stmt | None:
    """The TIR of a block; what it defines ends with it."""

    def ahead(stmt: Stmt, rest: Block) -> None:
        if isinstance(stmt, Alloc) and stays_number(stmt, rest):
            ctx.numbers.add(stmt.buffer)

    return emitted(block, ctx, emit, ahead)


def loop(
    ctx: LaneContext, var: Var, start: Expr, extent: Expr, body: tirx.Stmt, kind: int = tirx.ForKind.SERIAL
) -> tirx.Stmt:
    """A TIR loop over ``extent`` values of ``var`` from ``start``.

    A start known at run time alone is added to a counter: LLVM code generation simplifies start + extent with
    the values of bindings in place of their names, elements that have changed since among them."""
    known = int_value(start)
    if known == 0 or None not in (known, int_value(extent)):
        return tirx.For(var, start, extent, kind, body)
    counter = ctx.fresh(f"{var.name}_step", dtype_of(var))
    steps = tirx.SeqStmt([tirx.Bind(var, start + counter), body])
    return tirx.For(counter, tirx.const(0, dtype_of(var)), extent, kind, steps)


@emit.register(Alloc)
def _emit_alloc(stmt: Alloc, ctx: LaneContext) -> tirx.Stmt | None:
    if stmt.buffer.scope() == "global.address":
        return declare_at_address(stmt, ctx)
    return None if stmt.place == "registers" else allocate(stmt, ctx)


@emit.register(Bind)
def _emit_bind(stmt: Bind, ctx: LaneContext) -> tirx.Stmt | None:
    value = ctx.value(stmt.value)
    learn_binding(stmt, ctx)
    if lanes_of(value) > 1:
        return _hold(stmt.var, value, ctx)
    return tirx.Bind(ctx.define(stmt.var, value), value)


def _hold(var: Var, value: Expr, ctx: LaneContext) -> tirx.Stmt:
    """A value per lane is held in an array (which becomes a register): TVM's analyzer fails on variables that
    are bound to vectors of comparisons."""
    dtype, lanes = dtype_of(var), lanes_of(value)
    stored = encode(value, dtype) if dtype == "bool" else value
    name = ctx.fresh(var.name, "int32").name
    held = tirx.decl_buffer((lanes,), dtype_of(stored).partition("x")[0], name=name)
    place = tirx.Ramp(tirx.const(0), tirx.const(1), lanes)
    read = tirx.BufferLoad(held, [place])
    ctx.env[var] = decode(read, dtype) if dtype == "bool" else read
    return tirx.SeqStmt([tirx.AllocBuffer(held), tirx.BufferStore(held, stored, [place])])


@emit.register(Store)
def _emit_store(stmt: Store, ctx: LaneContext) -> tirx.Stmt | None:
    accumulator = ctx.accumulators.get(id(stmt))
    if accumulator is not None:
        return accumulator.step(ctx)
    if is_foreign(stmt.value) and parts(stmt.value)[1] == "void":
        return tirx.Evaluate(ctx.value(stmt.value))
    value = stmt.value
    if isinstance(value, tirx.Cast) and dtype_of(value) == dtype_of_buffer(stmt.buffer):
        value = _unrounded(value)
    return store_element(stmt.buffer, stmt.indices, ctx.value(value), ctx)


def dtype_of_buffer(buffer: Var) -> str:
    """The element type of a buffer of the tile IR."""
    return str(buffer.dtype)


def _unrounded(cast: tirx.Cast) -> Expr:
    """The operand of a cast between floats, which the store rounds; any other cast as it is."""
    source, dtype = dtype_of(cast.value), dtype_of(cast)
    narrowing = dtype in ("float16", "bfloat16") and source == "float32"
    return cast.value if narrowing else cast


@emit.register(If)
def _emit_if(stmt: If, ctx: LaneContext) -> tirx.Stmt | None:
    verdict = ctx.facts.prove(stmt.cond)
    if verdict is not None:
        return emit_block(stmt.then if verdict else stmt.orelse, ctx)
    cond = ctx.value(stmt.cond)
    if lanes_of(cond) > 1:
        return _predicated(stmt, cond, ctx)
    if ctx.recorder is not None and not is_predicable((stmt,), ctx):
        ctx.record(conjuncts(stmt.cond))
    return decided(stmt, cond, ctx, emit_block)


def _predicated(stmt: If, cond: Expr, ctx: LaneContext) -> tirx.Stmt | None:
    """Both branches for all lanes, their stores blended."""
    if not is_predicable((stmt,), ctx):
        raise NotVectorisable(
            f"lanes differ in {stmt.cond}", "choose values by T.if_then_else instead of branching"
        )
    with ctx.scope():
        taken = tirx.Var("taken", "bool")
        parts = [_hold(taken, cond, ctx)]
        mask = ctx.env[taken]
        for block, lanes in ((stmt.then, mask), (stmt.orelse, tirx.Not(mask))):
            with ctx.mask_scope(lanes):
                part = emit_block(block, ctx)
            parts += [part] if part is not None else []
        return sequence(parts)
