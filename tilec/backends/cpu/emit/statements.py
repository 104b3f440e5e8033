"""Tile IR statements as TIR: `emit` has one implementation per statement type.

``emit(stmt, ctx)`` returns the TIR statement, or None where nothing is left to do. A module that brings its
own statement registers an implementation with ``@emit.register(Class)``.
"""

from __future__ import annotations

from contextlib import suppress
from functools import reduce, singledispatch
from typing import TYPE_CHECKING

from tvm import ir as tvm_ir
from tvm import tirx

from tilec.backends.cpu.emit.loops.splits.range_splits import split_point
from tilec.backends.cpu.emit.loops.sums.scans import emit_running, running
from tilec.backends.cpu.emit.loops.turned_rows import emit_turned
from tilec.backends.cpu.emit.numbers.moves import hardly_computes, moved_bits, moves
from tilec.backends.cpu.emit.vectors.access import store_element
from tilec.backends.cpu.emit.vectors.lanes import NotVectorisable
from tilec.backends.cpu.emit.vectors.speculate import is_predicable, takes_masks
from tilec.errors import CompileError
from tilec.ir.exprs import cast_to, conjuncts, dtype_of, int_value
from tilec.ir.nodes import Alloc, Bind, For, If, Stmt, Store
from tilec.ir.places import place_of
from tilec.lowering.analysis.accesses import is_touch
from tilec.lowering.emission.loops import LOOPS, counted, is_left_early, read_once, unit_steps
from tilec.lowering.emission.memory import elements, first_value, flat_memory
from tilec.lowering.emission.parameters import declare_at_address
from tilec.lowering.emission.statements import decided, emit_bind, sequence, void_call
from tilec.lowering.emission.storage import decode, encode, stored_type
from tilec.lowering.math.vectors import lanes_of, reinterpreted, with_lanes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.ir.nodes import Alloc


@singledispatch
def emit(stmt: Stmt, ctx: LaneContext) -> tirx.Stmt | None:
    """The TIR of one statement."""
    raise CompileError(f"no CPU code for the statement {type(stmt).__name__}", place=place_of(stmt))


emit.register(Bind, emit_bind)
for _kind, _code in LOOPS.items():
    emit.register(_kind, _code)


@emit.register(Alloc)
def _emit_alloc(stmt: Alloc, ctx: LaneContext) -> tirx.Stmt | None:
    if stmt.buffer.scope() == "global.address":
        return declare_at_address(stmt, ctx)
    return None if stmt.place == "registers" else allocate(stmt, ctx)


def hold(var: Var, value: Expr, ctx: LaneContext) -> tirx.Stmt:
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
    if is_touch(stmt):
        return None
    accumulator = ctx.accumulators.get(stmt)
    if accumulator is not None:
        return accumulator.step(ctx)
    call = void_call(stmt, ctx)
    if call is not None:
        return call
    sharing = ctx.sharings.get(stmt)
    streams = stmt in ctx.streaming
    with ctx.move_scope(moves(stmt), hardly_computes(stmt)):
        bits = moved_bits(stmt)
        raw = bits is not None
        value = (
            _as_stored(stmt, ctx.value(bits)) if raw else ctx.unrounded(stmt.value, str(stmt.buffer.dtype))
        )
        if sharing is not None:
            return sharing.store(stmt, value if raw else ctx.encode_in(stmt.buffer, value), ctx)
        return store_element(stmt.buffer, stmt.indices, value, ctx, raw=raw, streams=streams)


def _as_stored(stmt: Store, bits: Expr) -> Expr:
    """Bits as the type that memory holds of what ``stmt`` writes."""
    dtype = with_lanes(stored_type(str(stmt.buffer.dtype)), lanes_of(bits))
    return reinterpreted(dtype, bits)


@emit.register(If)
def _emit_if(stmt: If, ctx: LaneContext) -> tirx.Stmt | None:
    verdict = ctx.facts.prove(stmt.cond)
    if verdict is not None:
        return ctx.block(stmt.then if verdict else stmt.orelse)
    cond = ctx.value(stmt.cond)
    if lanes_of(cond) > 1:
        return _predicated(stmt, cond, ctx)
    if ctx.recorder is not None and not is_predicable((stmt,), ctx):
        ctx.record(conjuncts(stmt.cond))
    return decided(stmt, cond, ctx)


def _predicated(stmt: If, cond: Expr, ctx: LaneContext) -> tirx.Stmt | None:
    """Both branches for all lanes, their stores blended."""
    count = _count_of_first(stmt, ctx)
    if not takes_masks((stmt,)) or ctx.first is not None:
        raise NotVectorisable(
            f"lanes differ in {stmt.cond}",
            "leave loops, atomic updates and tiles out of the branch: stores and names alone have masks",
        )
    with ctx.scope():
        taken = tirx.Var("taken", "bool")
        parts = [hold(taken, cond, ctx)]
        mask = ctx.env[taken]
        if count is not None:
            with ctx.mask_scope(mask), ctx.first_scope(count), ctx.facts.assume(stmt.cond):
                part = ctx.block(stmt.then)
            return sequence([*parts, part] if part is not None else parts)
        for block, lanes in ((stmt.then, mask), (stmt.orelse, tirx.Not(mask))):
            with ctx.mask_scope(lanes):
                part = ctx.block(block)
            parts += [part] if part is not None else []
        return sequence(parts)


def _count_of_first(stmt: If, ctx: LaneContext) -> Expr | None:
    """How many of the first lanes take a branch at the end of vectors; None where others may."""
    if not ctx.ends or ctx.lanes is None or ctx.mask is not None or stmt.orelse:
        return None
    bounds = [split_point(ctx.facts.inline(cond), ctx.lanes.var) for cond in conjuncts(stmt.cond)]
    if not all(found is not None and found[1] for found in bounds):
        return None
    limit = reduce(tirx.min, [found[0] for found in bounds if found is not None])
    return cast_to(ctx.control_value(limit, "ends", "use one end") - ctx.lanes.base, "int32")


#: Trips of a `T.unroll` that the code generator is asked to write out.
_MOST_UNROLLED = 16


@emit.register(For)
def _emit_for(stmt: For, ctx: LaneContext) -> tirx.Stmt | None:
    names, stmt = read_once(stmt)
    if names:
        return ctx.block((*names, stmt))
    stmt = unit_steps(stmt)
    scan = running(stmt) if ctx.lanes is None else None
    if scan is not None:
        with suppress(NotVectorisable):
            return emit_running(scan, ctx)
    turned = emit_turned(stmt, ctx)
    if turned is not None:
        return turned
    unrolls = stmt.kind == "unroll" and _is_short(stmt) and not is_left_early(stmt.body)
    kind = tirx.ForKind.UNROLLED if unrolls else tirx.ForKind.SERIAL
    return counted(stmt.var, stmt.start, stmt.stop, stmt.body, kind, ctx)


def _is_short(stmt: For) -> bool:
    start, stop = int_value(stmt.start), int_value(stmt.stop)
    return start is not None and stop is not None and stop - start <= _MOST_UNROLLED


# ---- memory of a block's own tiles: stack arrays, slices of the worker's scratch, copies per lane ----


def allocate(stmt: Alloc, ctx: LaneContext) -> tirx.Stmt | None:
    """The TIR that makes the memory of ``stmt.buffer`` and, for a variable, its first value."""
    data = flat_memory(stmt.buffer, elements(stmt), ctx, layout=stmt.layout, copies=ctx.width)
    return sequence([*_declared(stmt, data, ctx), *first_value(stmt, ctx, ctx.width)])


def _declared(stmt: Alloc, data: Var, ctx: LaneContext) -> list[tirx.Stmt]:
    if not isinstance(stmt.place, tuple):
        return [tirx.AllocBuffer(data)]
    if ctx.lanes is not None:
        raise CompileError(f"the loop temporary {stmt.buffer.name} was placed in scratch")
    return _scratch_slice(data, stmt.place[1], ctx)


def _scratch_slice(data: Var, offset: int, ctx: LaneContext) -> list[tirx.Stmt]:
    """Declares the flat buffer ``data`` at ``offset`` bytes of the worker's scratch."""
    kind = tvm_ir.PointerType(tvm_ir.PrimType(str(data.dtype)))
    pointer = tirx.Var(f"{data.name}_ptr", kind)
    start = [ctx.scratch, tirx.const(offset, "int64")]
    return [
        tirx.Bind(pointer, tvm_ir.Call("tirx.handle_add_byte_offset", start, ret_ty=kind)),
        tirx.DeclBuffer(data, data=pointer),
    ]
