"""Tile IR statements as device TIR: `emit` has one implementation per statement type.

``emit(stmt, ctx)`` returns the TIR statement, or None where nothing is left to do.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.device.ptx import instruction
from tilec.backends.cuda.emit.context import DeviceContext, Fragment, SharedStorage, mark_of
from tilec.backends.cuda.nodes import CommitGroup, Sync, WaitGroup
from tilec.errors import CompileError, UnsupportedError
from tilec.ir.foreign import is_foreign, parts
from tilec.ir.layout import Layout
from tilec.ir.layout_algebra import extent_of
from tilec.ir.nodes import Alloc, Bind, Block, Break, Continue, For, If, Pipelined, Stmt, Store, While, walk
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.places import place_of
from tilec.ir.roads import Loss
from tilec.lowering.emission.access import open_bounds
from tilec.lowering.emission.memory import first_value, flat_memory, static_shape
from tilec.lowering.emission.parameters import declare_at_address
from tilec.lowering.emission.statements import decided, emitted, learn_binding, sequence
from tilec.lowering.exprs import all_of, dtype_of, int_value, loads

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


#: Trips of a `T.unroll` that are written out; loops of more are left to the compiler.
MOST_UNROLLED = 64


@singledispatch
def emit(stmt: Any, ctx: DeviceContext) -> tirx.Stmt | None:
    """The TIR of one statement."""
    raise UnsupportedError(f"{type(stmt).__name__} has no CUDA code", place=place_of(stmt))


def emit_block(block: Block, ctx: DeviceContext) -> tirx.Stmt | None:
    """The TIR of a block; what it defines ends with it."""
    return emitted(block, ctx, emit_marked)


def emit_marked(stmt: Stmt, ctx: DeviceContext) -> tirx.Stmt | None:
    """The TIR of one statement, where the context asks for it behind a mark of its place."""
    part, mark = emit(stmt, ctx), mark_of(stmt) if ctx.marks else None
    if part is None or mark is None or isinstance(part, (tirx.Bind, tirx.AllocBuffer, tirx.DeclBuffer)):
        return part
    return tirx.SeqStmt([call(mark), part])


def call(value: Expr) -> tirx.Stmt:
    """An intrinsic for its effect."""
    return tirx.Evaluate(value)


# ---- memory ----


@emit.register(Alloc)
def _emit_alloc(stmt: Alloc, ctx: DeviceContext) -> tirx.Stmt | None:
    scope = stmt.buffer.scope()
    if scope.startswith("shared"):
        return _shared(stmt, ctx)
    if scope == "local.fragment":
        return _fragment(stmt, ctx)
    if scope == "global.address":
        return declare_at_address(stmt, ctx)
    return _private(stmt, ctx)


def _shared(stmt: Alloc, ctx: DeviceContext) -> tirx.Stmt:
    assert isinstance(stmt.place, tuple)
    assert ctx.pool is not None
    layout = stmt.layout or Layout.row_major(static_shape(stmt.buffer))
    data = flat_memory(stmt.buffer, layout.size, ctx, "shared.dyn", layout, kind=SharedStorage)
    return tirx.DeclBuffer(data, data=ctx.pool.ptr_to([stmt.place[1]]))


def _fragment(stmt: Alloc, ctx: DeviceContext) -> tirx.Stmt:
    assert stmt.layout is not None
    registers = extent_of(stmt.layout, "reg")
    data = flat_memory(stmt.buffer, registers, ctx, "local")
    ctx.fragments[stmt.buffer] = Fragment(data, str(stmt.buffer.dtype), stmt.layout)
    if registers > 255:
        loss = Loss("", "a thread has 255 registers", "choose smaller tiles, or give T.Kernel more threads")
        how = f"{stmt.buffer.name} takes {registers} registers of each thread: it spills to local memory"
        ctx.take(stmt, "registers", how, loss)
    if stmt.init is None:
        return tirx.AllocBuffer(data)
    return tirx.SeqStmt([tirx.AllocBuffer(data), zeroed(data, tirx.const(0, "int32"), registers, ctx)])


def zeroed(data: Var, first: Expr, count: int, ctx: DeviceContext) -> tirx.Stmt:
    """``data[first : first + count]`` = 0, unrolled."""
    var = ctx.fresh("r", "int32")
    store = tirx.BufferStore(data, tirx.const(0, str(data.dtype)), [first + var])
    return tirx.For(var, tirx.const(0), tirx.const(count), tirx.ForKind.UNROLLED, store)


def _private(stmt: Alloc, ctx: DeviceContext) -> tirx.Stmt | None:
    """Memory of one thread: T.alloc_local and T.alloc_var."""
    size = Layout.row_major(static_shape(stmt.buffer)).size
    data = flat_memory(stmt.buffer, size, ctx, "local")
    return sequence([tirx.AllocBuffer(data), *first_value(stmt, ctx)])


@emit.register(Store)
def _emit_store(stmt: Store, ctx: DeviceContext) -> tirx.Stmt | None:
    if is_foreign(stmt.value) and parts(stmt.value)[1] == "void":
        return call(ctx.value(stmt.value))
    bits = ctx.stored(stmt.value, str(stmt.buffer.dtype))
    return store_element(stmt.buffer, stmt.indices, bits, ctx)


def store_element(buffer: Var, indices: tuple[Expr, ...], bits: Expr, ctx: DeviceContext) -> tirx.Stmt | None:
    """Writes what memory is to hold (`DeviceContext.stored`); dropped outside of the buffer."""
    conds = open_bounds(buffer, indices, ctx)
    if conds is None:
        return None
    tests = [ctx.value(all_of(conds))] if conds else []
    fragment = ctx.fragments.get(buffer)
    if fragment is not None:
        return guarded(tirx.BufferStore(fragment.data, bits, [ctx.register(buffer, indices)]), tests)
    storage = ctx.storage(buffer)
    place = storage.offset([ctx.value(index) for index in indices])
    return guarded(tirx.BufferStore(storage.data, bits, [place]), [*tests, *once_tests(buffer, ctx)])


def once_tests(buffer: Var, ctx: DeviceContext) -> list[Expr]:
    """The condition under which this thread is the one that writes ``buffer``."""
    private = buffer.scope() in PER_THREAD
    return [] if private or ctx.once is None else [ctx.once]


def guarded(stmt: tirx.Stmt, tests: list[Expr]) -> tirx.Stmt:
    """``stmt`` where all of ``tests`` hold."""
    return tirx.IfThenElse(all_of(tests), stmt, None) if tests else stmt


# ---- control ----


@emit.register(Bind)
def _emit_bind(stmt: Bind, ctx: DeviceContext) -> tirx.Stmt:
    value = ctx.value(stmt.value)
    learn_binding(stmt, ctx)
    return tirx.Bind(ctx.define(stmt.var, value), value)


@emit.register(If)
def _emit_if(stmt: If, ctx: DeviceContext) -> tirx.Stmt | None:
    verdict = ctx.facts.prove(stmt.cond)
    if verdict is not None:
        with ctx.facts.remember(stmt.cond, verdict):
            return emit_block(stmt.then if verdict else stmt.orelse, ctx)
    return decided(stmt, ctx.value(stmt.cond), ctx, emit_block)


@emit.register(For)
def _emit_for(stmt: For, ctx: DeviceContext) -> tirx.Stmt | None:
    step, dtype = int_value(stmt.step), dtype_of(stmt.var)
    start, stop = int_value(stmt.start), int_value(stmt.stop)
    leaves = any(isinstance(inner, (Break, Continue)) for inner in walk(stmt.body))
    unrolls = stmt.kind == "unroll" and not leaves
    if unrolls and None not in (start, stop, step):
        trips = range(start, stop, step)  # type: ignore[arg-type]
        if len(trips) <= MOST_UNROLLED:
            return _unrolled(stmt, trips, ctx)
    kind = tirx.ForKind.UNROLLED if unrolls else tirx.ForKind.SERIAL
    if step == 1:
        return counted(stmt.var, stmt.start, stmt.stop, stmt.body, kind, ctx)
    zero = tirx.const(0, dtype)
    forward = step is None or step > 0
    distance = stmt.stop - stmt.start if forward else stmt.start - stmt.stop
    size = stmt.step if forward else tirx.const(-(step or 1), dtype)
    trip = tirx.Var(f"{stmt.var.name}_trip", dtype)
    body = (Bind(stmt.var, stmt.start + trip * stmt.step), *stmt.body)
    count = tirx.max(tirx.floordiv(distance + size - 1, size), zero)
    return counted(trip, zero, count, body, tirx.ForKind.SERIAL, ctx)


def _unrolled(stmt: For, trips: range, ctx: DeviceContext) -> tirx.Stmt | None:
    """A trip after the other, so that each has the bounds that it needs."""
    parts = []
    for trip in trips:
        value = tirx.const(trip, dtype_of(stmt.var))
        ctx.facts.bind_value(stmt.var, value)
        with ctx.scope():
            ctx.env[stmt.var] = value
            part = emit_block(stmt.body, ctx)
        parts += [part] if part is not None else []
    return sequence(parts)


@emit.register(Pipelined)
def _emit_pipelined(stmt: Pipelined, ctx: DeviceContext) -> tirx.Stmt | None:
    return counted(stmt.var, stmt.start, stmt.stop, stmt.body, tirx.ForKind.SERIAL, ctx)


def counted(
    var: Var,
    start: Expr,
    stop: Expr,
    body: Block,
    kind: int,
    ctx: DeviceContext,
    annotations: dict[str, bool] | None = None,
) -> tirx.Stmt | None:
    """A loop whose bounds are read once, before the first trip."""
    low, high = ctx.value(start), ctx.value(stop)
    ctx.facts.bind_range(var, start, stop)
    with ctx.scope():
        new = ctx.define(var)
        inner = emit_block(body, ctx)
    if inner is None:
        return None
    count = ctx.facts.analyzer.simplify(high - low)
    held = [
        (name, value)
        for name, value in (("first", low), ("count", count))
        if next(loads(value), None) is not None
    ]
    names = {name: ctx.fresh(f"{new.name}_{name}", dtype_of(value)) for name, value in held}
    first, trips = names.get("first", low), names.get("count", count)
    made = tirx.For(new, first, trips, kind, inner, annotations=annotations)
    return sequence([*(tirx.Bind(names[name], value) for name, value in held), made])


@emit.register(While)
def _emit_while(stmt: While, ctx: DeviceContext) -> tirx.Stmt:
    body = emit_block(stmt.body, ctx)
    return tirx.While(ctx.value(stmt.cond), body if body is not None else tirx.Evaluate(tirx.const(0)))


@emit.register(Break)
def _emit_break(stmt: Break, ctx: DeviceContext) -> tirx.Stmt:
    return tirx.Evaluate(tirx.break_loop())


@emit.register(Continue)
def _emit_continue(stmt: Continue, ctx: DeviceContext) -> tirx.Stmt:
    return tirx.Evaluate(tirx.continue_loop())


# ---- order between threads ----


@emit.register(Sync)
def _emit_sync(stmt: Sync, ctx: DeviceContext) -> tirx.Stmt:
    return block_barrier(ctx)


def block_barrier(ctx: DeviceContext) -> tirx.Stmt:
    """Waits for the threads that run the statement together: the block, or a group of it."""
    if ctx.group is None:
        return call(T.cuda.cta_sync())
    if ctx.group not in ctx.group_barriers:
        if not ctx.free_barriers:
            raise CompileError(
                "too many groups of threads meet for themselves",
                why="a block has 16 barriers, one of them for all of its threads",
                remedy="use fewer conditions on the thread index, or fewer named barriers",
            )
        ctx.group_barriers[ctx.group] = ctx.free_barriers.pop(0)
    return named_barrier(ctx.group_barriers[ctx.group], ctx.group[1])


def named_barrier(number: int, threads: int) -> tirx.Stmt:
    """Waits at barrier ``number`` of the block for ``threads`` threads."""
    return call(instruction("bar.sync")(tirx.const(number, "uint32"), threads))


@emit.register(CommitGroup)
def _emit_commit(stmt: CommitGroup, ctx: DeviceContext) -> tirx.Stmt:
    return call(instruction("cp.async.commit_group")())


@emit.register(WaitGroup)
def _emit_wait(stmt: WaitGroup, ctx: DeviceContext) -> tirx.Stmt:
    return call(instruction("cp.async.wait_group")(stmt.pending))
