"""A stream of curand's Philox4x32-10 as variables of a kernel and ordinary arithmetic.

The generator is J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011. What curand adds: the
subsequence is the upper half of the counter, the offset counts single numbers, and a counter's four words are
handed out one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilec.ir import nodes as ir
from tilec.language.tiles.memory.allocations import alloc_var
from tilec.language.values.functions.intrinsics import Select
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.builder import Frame
from tilec.language.values.kernel.places import loc
from tilec.language.values.operands import cast_value, expression, wrap
from tilec.language.values.operators import apply
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.value import Value

#: Multipliers and increments of the key (Salmon et al., table 2).
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_WORD = make_dtype("uint32")
_FLAG = make_dtype("int32")
WIDE = make_dtype("uint64")
SINGLE = make_dtype("float32")


@dataclass(frozen=True)
class Origin:
    """What a stream was started with: integers or expressions."""

    seed: Value
    sequence: Value
    offset: Value


@dataclass(eq=False)
class Stream:
    """A generator in ``frame``. ``first`` is the position of its first number in the subsequence, ``drawn``
    how many it has handed out, ``words`` the four numbers around the last position where ``fresh`` is 1;
    ``pair`` two normal numbers, of which the second waits where ``waits`` is 1. ``taken``: how many numbers
    the statements of ``frame`` draw each time that they run, as far as they are known."""

    frame: Frame
    origin: Origin
    key: tuple[Value, Value]
    sequence: tuple[Value, Value]
    first: Value
    drawn: Any
    fresh: Any
    words: list[Any]
    pair: list[Any]
    waits: Any
    taken: int = 0

    def draw(self) -> Value:
        """The next number, uint32."""
        position = bound("position", apply("+", self.first, Value(self.drawn.expr)))
        place = bound("place", cast_value(apply("&", position, 3), _FLAG))
        stale = apply("==", Value(self.fresh.expr), 0)
        with When(apply("|", stale, apply("==", place, 0))):
            self._refill(apply(">>", position, 2))
            self.fresh.store(1)
        found: Any = self.words[3]
        for number in (2, 1, 0):
            found = Select(apply("==", place, number), Value(self.words[number].expr), wrap(found))
        word = bound("drawn", found)
        self.drawn.store(apply("+", Value(self.drawn.expr), wide(1)))
        return word

    def skip(self, count: Value) -> None:
        """Leaves ``count`` numbers (uint64) out."""
        self.drawn.store(apply("+", Value(self.drawn.expr), count))
        self.fresh.store(0)

    def _refill(self, block: Value) -> None:
        """The four words of a counter."""
        words, keys = [*words_of(block), *self.sequence], self.key
        for number in range(_ROUNDS):
            first, second = (_product(words[2 * i], _MULTIPLIERS[i]) for i in (0, 1))
            words = [
                bound("word", apply("^", apply("^", second[1], words[1]), keys[0])),
                second[0],
                bound("word", apply("^", apply("^", first[1], words[3]), keys[1])),
                first[0],
            ]
            if number + 1 < _ROUNDS:
                keys = (apply("+", keys[0], _word(_STEPS[0])), apply("+", keys[1], _word(_STEPS[1])))
        for place, word in zip(self.words, words, strict=True):
            place.store(word)


def start(origin: Origin) -> Stream:
    """A stream that belongs to the region under way."""
    return Stream(
        sessions.builder("T.rng_init").region(),
        origin,
        words_of(origin.seed),
        words_of(origin.sequence),
        bound("first", cast_value(origin.offset, WIDE)),
        alloc_var(WIDE),
        alloc_var(_FLAG),
        [alloc_var(_WORD) for _ in range(4)],
        [alloc_var(SINGLE) for _ in range(2)],
        alloc_var(_FLAG),
    )


class When:
    """``with When(cond):`` statements under a run-time condition."""

    def __init__(self, cond: Value) -> None:
        self._cond = cond

    def __enter__(self) -> None:
        self._frame = sessions.builder("T.rng_rand").push("if")

    def __exit__(self, kind: Any, *rest: Any) -> None:
        builder = sessions.builder("T.rng_rand")
        body = builder.pop(self._frame)
        if kind is None:
            builder.emit(ir.If(expression(self._cond), body, loc=loc()), "T.rng_rand")


def bound(name: str, value: Any) -> Value:
    """The value, evaluated here."""
    return sessions.builder("T.rng_rand").bind(name, wrap(value))


def wide(value: int) -> Value:
    """A constant of 64 bits."""
    return cast_value(value, WIDE)


def words_of(value: Value) -> tuple[Value, Value]:
    """The two words of a number of 64 bits."""
    known = sessions.constant(value.expr)
    if known is None:
        return _halves(bound("rng", cast_value(value, WIDE)))
    return cast_value(known & 0xFFFFFFFF, _WORD), cast_value(known >> 32 & 0xFFFFFFFF, _WORD)


def _halves(value: Value) -> tuple[Value, Value]:
    """Low and high; the mask keeps TVM from folding a cast of a constant that does not fit."""
    low = apply("&", value, wide(0xFFFFFFFF))
    return cast_value(low, _WORD), cast_value(apply(">>", value, 32), _WORD)


def _product(word: Value, factor: int) -> tuple[Value, Value]:
    """The lower and the upper half of a product of two words."""
    product = apply("*", cast_value(word, WIDE), cast_value(factor, WIDE))
    low, high = _halves(bound("product", product))
    return bound("low", low), bound("high", high)


def _word(value: int) -> Value:
    return cast_value(value, _WORD)
