"""Random numbers in T.Parallel: a stream that was started in front of the loop is dealt to its iterations.

Which thread runs an iteration is open, so no iteration may change the state that the threads hold. Numbers of
a counter-based generator can be had in any order instead: each iteration starts a stream of its own at the
position of its share, which its place in the loop gives. A share has as many numbers as the iteration can
draw, whether its branches draw them or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.ir import nodes as ir
from tilec.language.threads.launches import current_launch
from tilec.language.threads.random.philox import WIDE, Origin, Stream, bound, start, wide
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import loc, unsupported
from tilec.language.values.operands import cast_value, wrap
from tilec.language.values.operators import apply
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.value import Value

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.language.threads.random.xorwow import Xorwow
    from tilec.language.values.kernel.builder import Builder, Frame

_INDEX = make_dtype("int32")
_REMEDY = "start a stream in the loop: T.rng_init(seed, seq=<the element's number>)"


def parallel_frames(frames: list[Frame], around: Frame | None = None) -> list[Frame]:
    """The T.Parallel loops among ``frames`` that lie inside of ``around``."""
    inside = [frame for frame in frames if around is None or (around.encloses(frame) and frame is not around)]
    return [frame for frame in inside if frame.kind == "parallel"]


def dealt(stream: Stream, builder: Builder) -> Stream:
    """The stream of the iteration that is under way; ``stream`` itself where there is no T.Parallel."""
    loops = parallel_frames(builder.frames, stream.frame)
    if not loops:
        return stream
    share, begin = (_variable(name) for name in ("share", "begin"))
    with builder.at_start(loops[-1]):
        number = element_number(loops)
        own = _started(stream, number, Value(share), Value(begin))
    outer = loops[0]
    outer.ahead.append(lambda: _hand_out(stream, own, loops, share, begin))
    builder.generators.append(own)
    return own


def element_number(loops: list[Frame]) -> Value:
    """The number of the iteration, uint64: the last axis of the innermost loop is the fastest."""
    number = wide(0)
    for var, extent in _axes(loops):
        number = apply("+", apply("*", number, _wide(extent)), _wide(var))
    return bound("number", number)


def count_of(loops: list[Frame]) -> Value:
    """How many iterations there are, uint64."""
    count = wide(1)
    for _, extent in _axes(loops):
        count = apply("*", count, _wide(extent))
    return count


def take(stream: Stream | Xorwow, builder: Builder, count: int = 1) -> None:
    """Notes that the place under way draws ``count`` numbers of a stream."""
    inside = [frame for frame in builder.frames if stream.frame.encloses(frame) and frame is not stream.frame]
    trips = count
    for frame in inside:
        if frame.trips is None and parallel_frames(builder.frames[: builder.frames.index(stream.frame) + 1]):
            raise unsupported(
                "random numbers of a stream from outside of T.Parallel, in a loop of open length inside",
                remedy=_REMEDY,
            )
        trips *= 1 if frame.trips is None else frame.trips
    stream.taken += trips


def _variable(name: str) -> Var:
    """A variable that gets its value where the loop ends."""
    from tvm import tirx

    return tirx.Var(name, "uint64")


def _axes(loops: list[Frame]) -> list[tuple[Var, Expr]]:
    inner = [stop for frame in loops[1:] for stop in frame.nest.stops]
    if any(sessions.constant(stop) is None for stop in inner):
        raise unsupported("random numbers in nested T.Parallel loops of run-time extents", remedy=_REMEDY)
    return [pair for frame in loops for pair in zip(frame.nest.vars, frame.nest.stops, strict=True)]


def _wide(expr: Expr) -> Value:
    return cast_value(Value(expr), WIDE)


def _started(stream: Stream, number: Value, share: Value, begin: Value) -> Stream:
    """The stream of iteration ``number``. Where threads hold streams of their own, iteration n belongs to
    thread n mod threads; else the iterations take turns on the one stream that all threads hold."""
    threads = _threads()
    indices = _thread_values(number, threads) if _by_thread(stream.origin) else None
    if indices is None:
        turn, origin, first = number, None, stream.first
    else:
        turn = apply("//", number, wide(threads))
        origin = Origin(*(_of_thread(value, indices) for value in _parts(stream.origin)))
        first = cast_value(origin.offset, WIDE)
    place = bound("place", apply("+", apply("+", first, begin), apply("*", turn, share)))
    if origin is not None:
        return start(Origin(origin.seed, origin.sequence, place))
    own = start(Origin(wrap(0), wrap(0), place))
    own.key, own.sequence = stream.key, stream.sequence
    return own


def _hand_out(stream: Stream, own: Stream, loops: list[Frame], share: Var, begin: Var) -> None:
    """In front of the loop: where its numbers begin, how many an iteration gets; they are gone for others."""
    builder = sessions.builder("T.rng_rand")
    builder.emit(ir.Bind(share, wide(own.taken).expr, loc=loc()), "T.rng_rand")
    builder.emit(ir.Bind(begin, stream.drawn.expr, loc=loc()), "T.rng_rand")
    turns = count_of(loops)
    if _by_thread(stream.origin):
        threads = _threads()
        turns = apply("//", apply("+", turns, wide(threads - 1)), wide(threads))
    total = apply("*", turns, wide(own.taken))
    stream.skip(total)
    known = sessions.constant(total.expr)
    if parallel_frames(builder.frames):
        if known is None:
            raise unsupported("random numbers in nested T.Parallel loops of run-time extents", remedy=_REMEDY)
        take(stream, builder, known)


# ---- streams of threads ----


def _threads() -> int:
    x, y, z = current_launch("T.rng_rand").threads
    return int(x * y * z)


def _parts(origin: Origin) -> tuple[Value, Value, Value]:
    return origin.seed, origin.sequence, origin.offset


def _by_thread(origin: Origin) -> bool:
    """Whether threads may hold different streams."""
    return any(_names_thread(_expanded(value.expr)) for value in _parts(origin))


def _names_thread(expr: Expr) -> bool:
    from tilec.ir.exprs import walk

    launch = current_launch("T.rng_rand")
    indices = launch.thread_indices() if launch.names_threads else ()
    return any(node.same_as(index) for node in walk(expr) for index in indices)


def _expanded(expr: Expr) -> Expr:
    """The expression with every name of the regions under way replaced by what it stands for."""
    from tilec.ir.exprs import inlined

    builder = sessions.builder("T.rng_rand")
    binds = [stmt for frame in builder.frames for stmt in frame.stmts if isinstance(stmt, ir.Bind)]
    names = {stmt.var: stmt.value for stmt in binds}
    return inlined(expr, names)


def _thread_values(number: Value, threads: int) -> list[Value]:
    """The indices along x, y, z of the thread that iteration ``number`` belongs to, int32."""
    width, height, _ = current_launch("T.rng_rand").threads
    linear = bound("thread", apply("%", number, wide(threads)))
    steps = ((1, width), (width, height), (width * height, threads))
    return [apply("%", apply("//", linear, wide(low)), wide(size)) for low, size in steps]


def _of_thread(value: Value, indices: list[Value]) -> Value:
    """``value`` as the thread with these indices has it."""
    from tilec.ir.exprs import loads, substitute

    expr = _expanded(value.expr)
    if not _names_thread(expr):
        return value
    if any(True for _ in loads(expr)):
        raise unsupported("random numbers in T.Parallel of a stream that threads have read", remedy=_REMEDY)
    variables = current_launch("T.rng_rand").thread_indices()
    values = [cast_value(index, _INDEX).expr for index in indices]
    return Value(substitute(expr, dict(zip(variables, values, strict=True))))
