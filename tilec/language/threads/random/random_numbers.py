"""T.rng_init, T.rng_rand, T.rng_rand_float: the streams of curand's Philox4x32-10 and XORWOW, one for each
thread; in T.Parallel those of Philox are dealt to the iterations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilec.errors import SourceRuntimeError, SourceValueError
from tilec.language.threads.indices import get_thread_binding
from tilec.language.threads.launches import get_block_binding, get_block_extent, get_thread_extent
from tilec.language.threads.random import xorwow
from tilec.language.threads.random.philox import SINGLE, WIDE, Origin, Stream, When, bound, start
from tilec.language.threads.random.random_loops import count_of, dealt, element_number, parallel_frames, take
from tilec.language.threads.random.xorwow import Xorwow
from tilec.language.values.functions.intrinsics import FUNCTIONS as MATH
from tilec.language.values.functions.intrinsics import Select
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.builder import Builder
from tilec.language.values.kernel.places import source_error, unsupported
from tilec.language.values.operands import cast_value, wrap
from tilec.language.values.operators import apply
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.value import Value

PHILOX, XORWOW = "curandStatePhilox4_32_10_t", "curandStateXORWOW_t"
#: Names of curand's states -> what starts a stream; the last two are its own shorter names.
_GENERATORS: dict[str, Callable[[Origin], Stream | Xorwow]] = {
    PHILOX: start,
    XORWOW: xorwow.start,
    "curandState_t": xorwow.start,
    "curandState": xorwow.start,
}
#: curand's factor from a word to an angle, a product of two float32.
_ANGLE = 2.0**-32 * 6.2831854820251465


def rng_init(seed: Any, seq: Any = None, off: Any = 0, generator: str = PHILOX) -> None:
    """Starts the thread's stream as curand_init does, in T.Parallel the iteration's. ``seq``: the
    subsequence, by default the thread's number in the grid (first axes), in T.Parallel the iteration's;
    ``off``: how many numbers to leave out. ``generator``: the name of curand's state, those of Philox and
    XORWOW; others are refused."""
    if generator not in _GENERATORS:
        raise unsupported(
            f"T.rng_init with {generator!r}", remedy=f"use {PHILOX!r}, the default, or {XORWOW!r}"
        )
    builder = sessions.builder("T.rng_init")
    if seq is None:
        seq = _number_in_grid(builder)
    builder.generators.append(_GENERATORS[generator](Origin(wrap(seed), wrap(seq), wrap(off))))


def _number_in_grid(builder: Builder) -> Value:
    """Of the iteration in T.Parallel, else of the thread."""
    loops = parallel_frames(builder.frames)
    if not loops:
        return wrap(get_thread_binding(0) + get_block_binding(0) * get_thread_extent(0))
    block: Any = get_block_binding(2)
    for axis in (1, 0):
        block = apply("+", apply("*", block, get_block_extent(axis)), get_block_binding(axis))
    found = apply("+", element_number(loops), apply("*", cast_value(block, WIDE), count_of(loops)))
    return wrap(found)


def rng_rand() -> Value:
    """The stream's next number, uint32."""
    return _draw("T.rng_rand")


def _draw(construct: str) -> Value:
    stream = _stream(construct)
    take(stream, sessions.builder(construct))
    return stream.draw()


def rng_rand_float(bit: int = 32, dist: str = "uniform") -> Value:
    """The next number in (0, 1], or with ``dist="normal"`` of the normal distribution, as curand_uniform and
    curand_normal make it of uint32 numbers; ``bit`` 32, and 64 for uniform ones."""
    if dist not in ("uniform", "normal") or bit not in (32, 64):
        raise source_error(
            SourceValueError,
            f"T.rng_rand_float with bit={bit!r} and dist={dist!r}",
            remedy='bit is 32 or 64, dist "uniform" or "normal"',
        )
    if dist == "uniform":
        return _uniform(_draw("T.rng_rand_float"), make_dtype(f"float{bit}"))
    if bit == 64:
        raise unsupported("T.rng_rand_float of 64 bits with normal distribution", remedy="use bit=32")
    return _normal(_stream("T.rng_rand_float"))


def _stream(construct: str) -> Stream | Xorwow:
    """The stream of the place under way: the last one that was started around it."""
    builder = sessions.builder(construct)
    around = [stream for stream in builder.generators if stream.frame.encloses(builder.region())]
    if not around:
        raise source_error(
            SourceRuntimeError, f"{construct} before T.rng_init", remedy="call T.rng_init(seed) first"
        )
    stream = around[-1]
    if not isinstance(stream, Xorwow):
        return dealt(stream, builder)
    if parallel_frames(builder.frames, stream.frame):
        raise unsupported(
            f"{construct} in T.Parallel, of a stream of XORWOW from outside of it",
            why="its numbers come one after the other, and which thread runs an iteration is open",
            remedy=f"use {PHILOX!r}, or start a stream in the loop",
        )
    return stream


def _uniform(word: Value, kind: make_dtype, scale: float = 2.0**-32) -> Value:
    step = cast_value(scale, kind)
    found: Value = apply("+", apply("*", cast_value(word, kind), step), cast_value(scale / 2, kind))
    return bound("uniform", found)


def _normal(stream: Stream | Xorwow) -> Value:
    """The transformation of G. Box and M. Muller: two numbers make two, the second of which waits."""
    fresh = bound("fresh", apply("==", Value(stream.waits.expr), 0))
    with When(fresh):
        length, angle = (
            _uniform(_draw("T.rng_rand_float"), SINGLE),
            _uniform(_draw("T.rng_rand_float"), SINGLE, _ANGLE),
        )
        radius = bound("radius", MATH["sqrt"](apply("*", -2.0, MATH["log"](length))))
        for place, name in zip(stream.pair, ("sin", "cos"), strict=True):
            place.store(apply("*", MATH[name](angle), radius))
    first, second = (Value(place.expr) for place in stream.pair)
    drawn = bound("normal", Select(fresh, first, second))
    stream.waits.store(apply("-", 1, Value(stream.waits.expr)))
    return drawn


#: Every function of this module that the T namespace offers, by name.
FUNCTIONS: dict[str, Callable[..., Any]] = {f.__name__: f for f in (rng_init, rng_rand, rng_rand_float)}
