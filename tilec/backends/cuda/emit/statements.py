"""Tile IR statements as device TIR: `emit` has one implementation per statement type.

``emit(stmt, ctx)`` returns the TIR statement, or None where nothing is left to do.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.device.exchange import ALL_LANES, SHARED_SYNC, warp_sync
from tilec.backends.cuda.device.ptx import instruction
from tilec.backends.cuda.emit.marks import mark_of
from tilec.backends.cuda.emit.memory import allocate
from tilec.backends.cuda.emit.numbers.wide import with_products
from tilec.backends.cuda.limits import has_named_barriers
from tilec.backends.cuda.nodes import CommitGroup, RaggedThreadLoop, SharedSync, Sync, WaitGroup
from tilec.errors import CompileError, UnsupportedError
from tilec.ir.exprs import all_of, dtype_of, int_value
from tilec.ir.nodes import Alloc, Bind, For, If, Stmt, Store, walk
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.places import place_of
from tilec.lowering.analysis.accesses import is_touch
from tilec.lowering.emission.access import open_bounds
from tilec.lowering.emission.loops import LOOPS, counted, is_left_early, read_once, unit_steps
from tilec.lowering.emission.statements import decided, emit_bind, guarded, sequence, void_call

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.emit.context import DeviceContext


#: Trips of a `T.unroll` that are written out; loops of more are left to the compiler.
MOST_UNROLLED = 64


@singledispatch
def emit(stmt: Any, ctx: DeviceContext) -> tirx.Stmt | None:
    """The TIR of one statement."""
    raise UnsupportedError(f"{type(stmt).__name__} has no CUDA code", place=place_of(stmt))


@emit.register(Bind)
def _emit_bind(stmt: Bind, ctx: DeviceContext) -> tirx.Stmt:
    """A name; products that its value has more than once are computed once."""
    with ctx.product_scope() as products:
        made = emit_bind(stmt, ctx)
    return with_products(made, products)


for _kind, _code in LOOPS.items():
    emit.register(_kind, _code)


def emit_marked(stmt: Stmt, ctx: DeviceContext) -> tirx.Stmt | None:
    """The TIR of one statement, where the context asks for it behind a mark of its place."""
    part, mark = emit(stmt, ctx), mark_of(stmt) if ctx.marks else None
    if part is None or mark is None or isinstance(part, (tirx.Bind, tirx.AllocBuffer, tirx.DeclBuffer)):
        return part
    return tirx.SeqStmt([call(mark), part])


def call(value: Expr) -> tirx.Stmt:
    """An intrinsic for its effect."""
    return tirx.Evaluate(value)


@emit.register(Alloc)
def _emit_alloc(stmt: Alloc, ctx: DeviceContext) -> tirx.Stmt | None:
    return allocate(stmt, ctx)


@emit.register(Store)
def _emit_store(stmt: Store, ctx: DeviceContext) -> tirx.Stmt | None:
    if is_touch(stmt):
        return None
    made = void_call(stmt, ctx)
    if made is not None:
        return made
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


# ---- control ----


@emit.register(If)
def _emit_if(stmt: If, ctx: DeviceContext) -> tirx.Stmt | None:
    verdict = ctx.facts.prove(stmt.cond)
    if verdict is not None:
        with ctx.facts.remember(stmt.cond, verdict):
            return ctx.block(stmt.then if verdict else stmt.orelse)
    return decided(stmt, ctx.value(stmt.cond), ctx)


@emit.register(For)
def _emit_for(stmt: For, ctx: DeviceContext) -> tirx.Stmt | None:
    trips = _written_out(stmt)
    if trips is not None:
        return _unrolled(stmt, trips, ctx)
    names, stmt = read_once(stmt)
    if names:
        return ctx.block((*names, stmt))
    stmt = unit_steps(stmt)
    unrolls = stmt.kind == "unroll" and not is_left_early(stmt.body)
    kind = tirx.ForKind.UNROLLED if unrolls else tirx.ForKind.SERIAL
    return counted(stmt.var, stmt.start, stmt.stop, stmt.body, kind, ctx, **_hints(stmt))


def _hints(stmt: For) -> dict[str, bool]:
    """What keeps the compiler from writing out trips with vectors whose places are tested: long code, and
    registers that other code lacks."""
    tested = any(isinstance(inner, RaggedThreadLoop) for inner in walk(stmt.body))
    return {"disable_unroll": True} if tested and stmt.kind == "serial" else {}


def _written_out(stmt: For) -> range | None:
    """The trips of a loop that is written out; None for another one."""
    if stmt.kind != "unroll" or is_left_early(stmt.body):
        return None
    numbers = [int_value(part) for part in (stmt.start, stmt.stop, stmt.step)]
    if None in numbers:
        return None
    trips = range(*numbers)  # type: ignore[arg-type]
    return trips if len(trips) <= MOST_UNROLLED else None


def _unrolled(stmt: For, trips: range, ctx: DeviceContext) -> tirx.Stmt | None:
    """A trip after the other, so that each has the bounds that it needs."""
    parts = []
    for trip in trips:
        value = tirx.const(trip, dtype_of(stmt.var))
        ctx.facts.bind_value(stmt.var, value)
        with ctx.scope():
            ctx.env[stmt.var] = value
            part = ctx.block(stmt.body)
        parts += [part] if part is not None else []
    return sequence(parts)


# ---- order between threads ----


@emit.register(Sync)
def _emit_sync(stmt: Sync, ctx: DeviceContext) -> tirx.Stmt:
    return block_barrier(ctx)


@emit.register(SharedSync)
def _emit_shared_sync(stmt: SharedSync, ctx: DeviceContext) -> tirx.Stmt:
    return call(SHARED_SYNC.call()) if ctx.group is None else block_barrier(ctx)


def block_barrier(ctx: DeviceContext) -> tirx.Stmt:
    """Waits for the threads that run the statement together: the block, or a group of it."""
    return call(T.cuda.cta_sync()) if ctx.group is None else group_barrier(ctx.group, ctx)


def group_barrier(group: tuple[int, int], ctx: DeviceContext) -> tirx.Stmt:
    """Waits for the threads of a group: the first one and how many. Those of one warp need no barrier of the
    block."""
    if group[0] % WARP == 0 and group[1] == WARP:
        return call(warp_sync(ALL_LANES).call())
    need_named_barriers(
        f"threads {group[0]} to {sum(group) - 1} of a block wait for each other",
        "end the condition on the thread index before they meet, and begin it again behind T.sync_threads()",
        ctx,
    )
    if group not in ctx.group_barriers:
        if not ctx.free_barriers:
            raise CompileError(
                "too many groups of threads meet for themselves",
                why="a block has 16 barriers, one of them for all of its threads",
                remedy="use fewer conditions on the thread index, or fewer named barriers",
            )
        ctx.group_barriers[group] = ctx.free_barriers.pop(0)
    return named_barrier(ctx.group_barriers[group], group[1])


def need_named_barriers(what: str, remedy: str, ctx: DeviceContext) -> None:
    """UnsupportedError where GPUs have barriers of whole blocks alone."""
    if has_named_barriers(ctx.target):
        return
    raise UnsupportedError(
        what,
        why="apart from NVIDIA's, GPUs have barriers of whole blocks alone",
        remedy=f"{remedy}, or leave these targets out of the kernel's `targets`",
    )


def named_barrier(number: int, threads: int) -> tirx.Stmt:
    """Waits at barrier ``number`` of the block for ``threads`` threads."""
    return call(instruction("bar.sync")(tirx.const(number, "uint32"), threads))


@emit.register(CommitGroup)
def _emit_commit(stmt: CommitGroup, ctx: DeviceContext) -> tirx.Stmt:
    return call(instruction("cp.async.commit_group")())


@emit.register(WaitGroup)
def _emit_wait(stmt: WaitGroup, ctx: DeviceContext) -> tirx.Stmt:
    return call(instruction("cp.async.wait_group")(stmt.pending))
