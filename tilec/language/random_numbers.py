"""T.rng_init, T.rng_rand, T.rng_rand_float: the streams of curand's Philox4x32-10, one for each thread.

The generator is J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011. What curand adds: the
subsequence is the upper half of the counter, the offset counts single numbers, and a counter's four words are
handed out one by one. The state is variables of the thread, and all of it is ordinary arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilec.errors import SourceRuntimeError, SourceValueError
from tilec.ir import nodes as ir
from tilec.language import session as sessions
from tilec.language.conversions import cast_value, expression, tirx_function, wrap
from tilec.language.intrinsics import FUNCTIONS as MATH
from tilec.language.intrinsics import Select
from tilec.language.launches import get_block_binding, get_thread_extent
from tilec.language.memory import alloc_var
from tilec.language.places import loc, source_error, unsupported
from tilec.language.scalars import dtype as make_dtype
from tilec.language.threads import get_thread_binding
from tilec.language.values import Value, apply

PHILOX = "curandStatePhilox4_32_10_t"
#: Multipliers and increments of the key (Salmon et al., table 2).
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_WORD = make_dtype("uint32")
_WIDE = make_dtype("uint64")
_SINGLE = make_dtype("float32")
#: curand's factor from a word to an angle, a product of two float32.
_ANGLE = 2.0**-32 * 6.2831854820251465


@dataclass(frozen=True)
class _State:
    """A thread's generator: counter, key, the four words at hand, which of them is next; a pair of normal
    numbers and whether its second one waits (1) or not (0)."""

    counter: list[Any]
    key: tuple[Value, Value]
    words: list[Any]
    place: Any
    pair: list[Any]
    waits: Any


def rng_init(seed: Any, seq: Any = None, off: Any = 0, generator: str = PHILOX) -> None:
    """Starts the thread's stream as curand_init does. ``seq``: the subsequence, by default the thread's
    number in the grid (first axes); ``off``: how many numbers to leave out. Other generators are refused."""
    if generator != PHILOX:
        raise unsupported(f"T.rng_init with {generator!r}", remedy=f"use {PHILOX!r}, the default")
    builder = sessions.builder("T.rng_init")
    if seq is None:
        seq = apply("+", get_thread_binding(0), apply("*", get_block_binding(0), get_thread_extent(0)))
    skipped = cast_value(wrap(off), _WIDE)
    key = _words(wrap(seed))
    counts = (apply(">>", skipped, 2), wrap(seq))
    counter = [alloc_var(_WORD, init=half) for count in counts for half in _words(count)]
    number = make_dtype("int32")
    place = alloc_var(number, init=cast_value(apply("&", skipped, 3), number))
    words = [alloc_var(_WORD) for _ in range(4)]
    pair = [alloc_var(_SINGLE) for _ in range(2)]
    state = _State(counter, key, words, place, pair, alloc_var(number))
    _refill(state)
    builder.generator = state


def rng_rand() -> Value:
    """The stream's next number, uint32."""
    state = _state("T.rng_rand")
    place = Value(state.place.expr)
    found: Any = state.words[3]
    for number in (2, 1, 0):
        found = Select(apply("==", place, number), Value(state.words[number].expr), wrap(found))
    drawn = _bound("drawn", found)
    state.place.store(apply("+", place, 1))
    with _When(apply("==", Value(state.place.expr), 4)):
        _increment(state.counter)
        _refill(state)
        state.place.store(0)
    return drawn


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
        return _uniform(rng_rand(), make_dtype(f"float{bit}"))
    if bit == 64:
        raise unsupported("T.rng_rand_float of 64 bits with normal distribution", remedy="use bit=32")
    return _normal(_state("T.rng_rand_float"))


def _state(construct: str) -> _State:
    state: _State | None = getattr(sessions.builder(construct), "generator", None)
    if state is None:
        raise source_error(
            SourceRuntimeError, f"{construct} before T.rng_init", remedy="call T.rng_init(seed) first"
        )
    return state


def _uniform(word: Value, kind: make_dtype, scale: float = 2.0**-32) -> Value:
    step = cast_value(scale, kind)
    found: Value = apply("+", apply("*", cast_value(word, kind), step), cast_value(scale / 2, kind))
    return _bound("uniform", found)


def _normal(state: _State) -> Value:
    """The transformation of G. Box and M. Muller: two numbers make two, the second of which waits."""
    fresh = _bound("fresh", apply("==", Value(state.waits.expr), 0))
    with _When(fresh):
        length, angle = _uniform(rng_rand(), _SINGLE), _uniform(rng_rand(), _SINGLE, _ANGLE)
        radius = _bound("radius", MATH["sqrt"](apply("*", -2.0, MATH["log"](length))))
        for place, name in zip(state.pair, ("sin", "cos"), strict=True):
            place.store(apply("*", MATH[name](angle), radius))
    first, second = (Value(place.expr) for place in state.pair)
    drawn = _bound("normal", Select(fresh, first, second))
    state.waits.store(apply("-", 1, Value(state.waits.expr)))
    return drawn


class _When:
    """``with _When(cond):`` statements under a run-time condition."""

    def __init__(self, cond: Value) -> None:
        self._cond = cond

    def __enter__(self) -> None:
        self._frame = sessions.builder("T.rng_rand").push("if")

    def __exit__(self, kind: Any, *rest: Any) -> None:
        builder = sessions.builder("T.rng_rand")
        body = builder.pop(self._frame)
        if kind is None:
            builder.emit(ir.If(expression(self._cond), body, loc=loc()), "T.rng_rand")


def _bound(name: str, value: Any) -> Value:
    """The value, evaluated here."""
    return sessions.builder("T.rng_rand").bind(name, wrap(value))


def _words(value: Value) -> tuple[Value, Value]:
    """The two words of a number of 64 bits."""
    known = sessions.constant(value.expr)
    if known is None:
        return _halves(_bound("rng", cast_value(value, _WIDE)))
    return cast_value(known & 0xFFFFFFFF, _WORD), cast_value(known >> 32 & 0xFFFFFFFF, _WORD)


def _halves(value: Value) -> tuple[Value, Value]:
    return cast_value(value, _WORD), cast_value(apply(">>", value, 32), _WORD)


def _increment(counter: list[Any]) -> None:
    """The counter of four words plus one."""
    carry = wrap(True)
    for word in counter:
        word.store(apply("+", Value(word.expr), cast_value(carry, _WORD)))
        carry = _bound(
            "carry", Value(tirx_function("And")(carry.expr, apply("==", Value(word.expr), 0).expr))
        )


def _refill(state: _State) -> None:
    """The four words of the counter."""
    words = [_bound("word", Value(word.expr)) for word in state.counter]
    keys = state.key
    for number in range(_ROUNDS):
        first, second = (_product(words[2 * i], _MULTIPLIERS[i]) for i in (0, 1))
        words = [
            _bound("word", apply("^", apply("^", second[1], words[1]), keys[0])),
            second[0],
            _bound("word", apply("^", apply("^", first[1], words[3]), keys[1])),
            first[0],
        ]
        if number + 1 < _ROUNDS:
            keys = (apply("+", keys[0], _word(_STEPS[0])), apply("+", keys[1], _word(_STEPS[1])))
    for place, word in zip(state.words, words, strict=True):
        place.store(word)


def _product(word: Value, factor: int) -> tuple[Value, Value]:
    """The lower and the upper half of a product of two words."""
    wide = apply("*", cast_value(word, _WIDE), cast_value(factor, _WIDE))
    low, high = _halves(_bound("product", wide))
    return _bound("low", low), _bound("high", high)


def _word(value: int) -> Value:
    return cast_value(value, _WORD)


#: Every function of this module that the T namespace offers, by name.
FUNCTIONS: dict[str, Callable[..., Any]] = {f.__name__: f for f in (rng_init, rng_rand, rng_rand_float)}
