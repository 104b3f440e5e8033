"""ThreadLoop as code of one thread: its registers' iterations, with vector loads and stores around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tvm import tirx
from tvm.ir import Var
from tvm.tirx.analysis import undefined_vars

from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.loop_digits import Part
from tilec.backends.cuda.emit.loops.reads_first import FirstReads, HaveRead
from tilec.backends.cuda.emit.loops.vector import Vector
from tilec.backends.cuda.emit.loops.vector_moves import move_registers
from tilec.backends.cuda.emit.products.fragment_store import stored_fragment
from tilec.backends.cuda.emit.products.lane_digits import WARP, convert_sum, thread_digit
from tilec.backends.cuda.emit.statements import emit
from tilec.backends.cuda.nodes import TakeAhead, ThreadLoop, ThreadVector
from tilec.ir.exprs import all_of, dtype_of, int_value
from tilec.ir.layout import Digit, Layout
from tilec.ir.layout_algebra import terms
from tilec.ir.nodes import Alloc, walk
from tilec.lowering.analysis.accesses import accesses
from tilec.lowering.emission.statements import guarded, sequence

if TYPE_CHECKING:
    from tvm.ir import Expr


@emit.register(ThreadLoop)
def emit_thread_loop(stmt: ThreadLoop, ctx: DeviceContext) -> tirx.Stmt | None:
    """The iterations of this thread."""
    stored = stored_fragment(stmt, ctx)
    if stored is not None:
        return stored
    first = _read_first(stmt, ctx)
    vector = Vector(stmt, ctx, None if first is None else HaveRead(first[0]))
    touched = accesses(stmt.body)
    own = {inner.buffer for inner in walk(stmt.body) if isinstance(inner, Alloc)}
    written = {item.buffer for item in touched if item.is_write} - own
    made = over_layout(
        Iterations.of(stmt),
        vector.emit,
        ctx,
        once=all(map(_is_shared, written)),
        in_order=not any(_is_shared(item.buffer) for item in touched),
        reads=vector.once,
    )
    return made if first is None or made is None else sequence([*first[1], made])


def _read_first(stmt: ThreadLoop, ctx: DeviceContext) -> tuple[FirstReads, list[tirx.Stmt]] | None:
    """What a loop reads before it stores anything, and the code that does; None where it does not."""
    first = FirstReads.of(stmt, ctx)
    if first is None or replica_zero(stmt.layout, ctx) is not None:
        return None

    def moves() -> tirx.Stmt | None:
        vector = Vector(stmt, ctx, first)
        vector.loads.in_front()
        return sequence(first.moves) if first.moves else None

    read = over_layout(Iterations.of(stmt), moves, ctx)
    if read is None or not first.pays:
        return None
    return first, [*map(tirx.AllocBuffer, first.registers), read]


@emit.register(ThreadVector)
def _emit_thread_vector(stmt: ThreadVector, ctx: DeviceContext) -> tirx.Stmt | None:
    """All trips in this thread, whichever it is."""
    count = int_value(stmt.stop)
    assert count is not None
    layout = Layout(((Digit(count, 1, "reg"),),))
    loop = ThreadLoop((stmt.var,), (count,), layout, stmt.body, count, loc=stmt.loc)
    with ctx.scope():
        ctx.facts.bind_range(stmt.var, 0, count)
        parts = parts_of(layout, 0, count, [], ctx)
        ctx.digits[stmt.var] = tuple(parts)
        start = ctx.define(stmt.var)
        vector = Vector(loop, ctx)
        body = vector.emit()
    if body is None:
        return None
    return sequence([tirx.Bind(start, convert_sum(parts, dtype_of(stmt.var))), *vector.once, body])


@emit.register(TakeAhead)
def _emit_take(stmt: TakeAhead, ctx: DeviceContext) -> tirx.Stmt:
    return move_registers(stmt.src.buffer, stmt.dst.buffer, stmt.width, ctx)


def _is_shared(buffer: Var) -> bool:
    """Whether all threads see a buffer."""
    return bool(buffer.scope().startswith(("shared", "global")))


class RegisterLoop(NamedTuple):
    """A loop over registers that lie ``stride`` apart."""

    var: Var
    size: int
    stride: int


class Iterations(NamedTuple):
    """Iterations that the threads of a block share out under ``layout``: those of ``variables`` below
    ``extents``, which the layout may exceed, ``vector`` neighbours along the last one at once."""

    variables: tuple[Var, ...]
    extents: tuple[int, ...]
    layout: Layout
    vector: int = 1

    @classmethod
    def of(cls, stmt: ThreadLoop) -> Iterations:
        """Those of a loop."""
        return cls(stmt.vars, stmt.extents, stmt.layout, stmt.vector)


def over_layout(
    iterations: Iterations,
    body: Callable[[], tirx.Stmt | None],
    ctx: DeviceContext,
    once: bool = False,
    in_order: bool = False,
    reads: Sequence[tirx.Bind] = (),
) -> tirx.Stmt | None:
    """``body`` once per vector of iterations that this thread has, the variables being defined (the last one
    at the start of the vector). Threads whose iterations another thread has, too, write
    to no memory; with ``once`` they do nothing at all. ``in_order``: registers come by their numbers and not
    axis by axis, which ptxas keeps (rescaled and exponentiated like that, attention of 4096 keys reaches 714
    TFLOP/s on an H200 and not 691). ``reads``: what ``body`` wants read in front of it, as far outside as
    places are the same."""
    loops: list[RegisterLoop] = []
    first = replica_zero(iterations.layout, ctx)
    with ctx.scope(), ctx.once_scope(None if once else first):
        binds, guards = _defined(iterations, loops, ctx)
        inner = body()
    if inner is None:
        return None
    if once and first is not None:
        guards.insert(0, first)
    if guards:
        inner, reads = guarded(sequence([*reads, inner]), guards), ()
    loops = sorted(loops, key=lambda each: each.stride) if in_order else loops[::-1]
    return _looped(inner, loops, binds, reads)


def _defined(
    iterations: Iterations, loops: list[RegisterLoop], ctx: DeviceContext
) -> tuple[list[tirx.Bind], list[Expr]]:
    """The variables by what this thread and its ``loops``, which are added, make of them; and the tests of
    those along which the layout has more than there is."""
    variables, extents, layout, vector = iterations
    binds, guards = [], []
    for axis, var in enumerate(variables):
        ctx.facts.bind_range(var, 0, extents[axis])
        step = vector if axis == len(variables) - 1 else 1
        parts = parts_of(layout, axis, step, loops, ctx)
        ctx.digits[var] = tuple(parts)
        value = convert_sum(parts, dtype_of(var))
        new = ctx.define(var)
        ctx.sums[new] = value
        binds.append(tirx.Bind(new, value))
        if layout.shape[axis] > extents[axis]:
            guards.append(tirx.LT(new, tirx.const(extents[axis], dtype_of(var))))
    return binds, guards


def _looped(
    inner: tirx.Stmt,
    loops: Sequence[RegisterLoop],
    binds: Sequence[tirx.Bind],
    reads: Sequence[tirx.Bind],
) -> tirx.Stmt:
    """``inner`` in loops, the first of which is the innermost, but for those that ``reads`` depend on, which
    stand outside. Each name stands in the outermost loop that it varies with."""
    result, early = inner, [*binds, *reads]
    for loop in sorted(loops, key=lambda each: any(bind in reads for bind in _moved(early, each.var))):
        moved = _moved(early, loop.var)
        early = [bind for bind in early if bind not in moved]
        result = sequence([*moved, result])
        result = tirx.For(loop.var, tirx.const(0), tirx.const(loop.size), tirx.ForKind.UNROLLED, result)
    return sequence([*early, result])


def _moved(binds: Sequence[tirx.Bind], var: Var) -> list[tirx.Bind]:
    """Those of several names whose values depend on a variable."""
    names, found = {var}, []
    for bind in binds:
        if names & set(undefined_vars(bind.value)):
            names.add(bind.var)
            found.append(bind)
    return found


def parts_of(
    layout: Layout, axis: int, vector: int, loops: list[RegisterLoop], ctx: DeviceContext
) -> list[Part]:
    """The digits of one variable; registers beyond the vector become loops, added to ``loops``."""
    parts = []
    for term in terms(layout, axis):
        weight, size, stride = term.weight, term.size, term.stride
        if term.space != "reg":
            parts.append(Part(weight, size, thread_digit(term.space, term.stride, size, ctx), False))
            continue
        if weight == 1 and vector > 1:
            parts.append(Part(1, vector, tirx.const(0, "int32"), True))
            weight, size, stride = vector, size // vector, stride * vector
        if size > 1:
            var = ctx.fresh("r", "int32")
            ctx.facts.bind_range(var, 0, size)
            loops.append(RegisterLoop(var, size, stride))
            parts.append(Part(weight, size, var, True))
    return parts


def replica_zero(layout: Layout, ctx: DeviceContext) -> Expr | None:
    """Where several threads have the same iterations, the condition that picks one; else None."""
    tests = []
    for space, place, count in (("lane", ctx.lane, WARP), ("warp", ctx.warp, ctx.warps)):
        used = [term for axis in range(len(layout.digits)) for term in terms(layout, axis)
                if term.space == space]  # fmt: skip
        total = 1
        for term in used:
            total *= term.size
        if total < count:
            own: Expr = tirx.const(0, "int32")
            for term in used:
                own = own + thread_digit(space, term.stride, term.size, ctx) * term.stride
            tests.append(tirx.EQ(own, place))
    return all_of(tests) if tests else None
