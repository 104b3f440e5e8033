"""A stream of curand's XORWOW generator as variables of a kernel and ordinary arithmetic.

The generator is G. Marsaglia, "Xorshift RNGs", Journal of Statistical Software 8 (14), 2003, section 3.1:
five words that shifts and exclusive ors turn over, and a counter that is added. What curand adds is how a
seed becomes words, and where a subsequence begins: 2^67 numbers behind the one before it (cuRAND guide, "Bit
Generation with XORWOW and MRG32k3a generators"). To turn the words over n times is to multiply by x^n modulo
the polynomial of the turn, over GF(2): an exclusive or of the 160 states behind the present one.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tilec.language.control.loops import serial
from tilec.language.threads.random.philox import SINGLE, WIDE, Origin, When, bound, words_of
from tilec.language.tiles.memory.allocations import alloc_local, alloc_var
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.builder import Frame
from tilec.language.values.operands import cast_value, wrap
from tilec.language.values.operators import apply
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.value import Value

_WORD, _FLAG = make_dtype("uint32"), make_dtype("int32")
_WORDS, _BITS = 5, 160
_LOW = 0xFFFFFFFF
#: What curand's curand_init makes of the halves of a seed: each is xored and multiplied, and the words and
#: the counter are these numbers combined with the products.
_SALTS, _FACTORS = (0xAAD26B49, 0xF7DCEFDD), (1099087573, 2591861531)
_START, _COUNTER = (123456789, 362436069, 521288629, 88675123, 5783321), 6615241
#: What the counter grows by, and the binary logarithm of the length of a subsequence.
_STEP, _SUBSEQUENCE = 362437, 67


@dataclass(eq=False)
class Xorwow:
    """A generator in ``frame``: its words and its counter; ``pair``, ``waits`` and ``taken`` as those of
    `tilec.language.threads.random.philox.Stream`."""

    frame: Frame
    words: list[Any]
    counter: Any
    pair: list[Any]
    waits: Any
    taken: int = 0

    def draw(self) -> Value:
        """The next number, uint32."""
        _turn(self.words)
        self.counter.store(apply("+", Value(self.counter.expr), _word(_STEP)))
        return bound("drawn", apply("+", Value(self.words[-1].expr), Value(self.counter.expr)))


def start(origin: Origin) -> Xorwow:
    """A stream that belongs to the region under way."""
    frame = sessions.builder("T.rng_init").region()
    words, counter = _seeded(origin.seed)
    made = Xorwow(frame, words, counter, [alloc_var(SINGLE) for _ in range(2)], alloc_var(_FLAG))
    _jump(words, origin.sequence, _SUBSEQUENCE)
    _jump(words, origin.offset, 0)
    skipped = apply("*", cast_value(origin.offset, _WORD), _word(_STEP))
    counter.store(apply("+", Value(counter.expr), skipped))
    return made


def _seeded(seed: Value) -> tuple[list[Any], Any]:
    """The words and the counter that a seed of 64 bits begins with."""
    low, high = (
        bound("salted", apply("*", apply("^", half, _word(salt)), _word(factor)))
        for half, salt, factor in zip(words_of(seed), _SALTS, _FACTORS, strict=True)
    )
    parts = (("+", low), ("^", low), ("+", high), ("^", high), ("+", low))
    words = [
        alloc_var(_WORD, init=apply(symbol, _word(number), part))
        for number, (symbol, part) in zip(_START, parts, strict=True)
    ]
    return words, alloc_var(_WORD, init=apply("+", apply("+", _word(_COUNTER), high), low))


def _turn(words: list[Any]) -> None:
    """One turn of the words."""
    first, last = Value(words[0].expr), Value(words[-1].expr)
    mixed = bound("mixed", apply("^", first, apply(">>", first, _word(2))))
    fresh = apply(
        "^", apply("^", last, apply("<<", last, _word(4))), apply("^", mixed, apply("<<", mixed, _word(1)))
    )
    fresh = bound("fresh", fresh)
    for place, following in itertools.pairwise(words):
        place.store(Value(following.expr))
    words[-1].store(fresh)


def _jump(words: list[Any], count: Value, exponent: int) -> None:
    """Turns the words over ``count * 2**exponent`` times: for every bit of the count that is set by its power
    of two."""
    known = sessions.constant(count.expr)
    if known == 0:
        return None
    if known is not None:
        return _multiply(words, [_power(known << exponent)], None)
    wide = bound("count", cast_value(count, WIDE))
    bits = _bits_of(count)
    return _multiply(words, [_power(1 << (exponent + bit)) for bit in range(bits)], wide)


def _bits_of(count: Value) -> int:
    """How many bits an integer may have."""
    bound_ = sessions.current("T.rng_init").analyzer.const_int_bound(count.expr)
    whole = count.dtype.bits
    return min(whole, int(bound_.max_value).bit_length()) if bound_.min_value >= 0 else whole


def _multiply(words: list[Any], powers: list[int], count: Value | None) -> None:
    """Multiplies the state by each power whose bit of ``count`` is set; by all without one."""
    table = alloc_local((len(powers) * _WORDS,), _WORD)
    for number, power in enumerate(powers):
        for place in range(_WORDS):
            table[number * _WORDS + place] = _word(power >> (32 * place) & _LOW)
    rows = serial(len(powers))
    row = rows.open()
    if count is None:
        _by_polynomial(words, table, row)
    else:
        with When(apply("!=", apply("&", apply(">>", count, cast_value(row, WIDE)), cast_value(1, WIDE)), 0)):
            _by_polynomial(words, table, row)
    rows.close()


def _by_polynomial(words: list[Any], table: Any, row: Value) -> None:
    """The exclusive or of the states that the polynomial in a row of the table names."""
    total = [alloc_var(_WORD, init=0) for _ in words]
    for place in total:
        place.store(_word(0))
    places, steps = serial(_WORDS), serial(32)
    place = places.open()
    step = steps.open()
    coefficients = Value(table[apply("+", apply("*", row, _WORDS), place)].expr)
    bit = apply("&", apply(">>", coefficients, cast_value(step, _WORD)), _word(1))
    with When(apply("!=", bit, _word(0))):
        for part, word in zip(total, words, strict=True):
            part.store(apply("^", Value(part.expr), Value(word.expr)))
    _turn(words)
    steps.close()
    places.close()
    for part, word in zip(total, words, strict=True):
        word.store(Value(part.expr))


def _word(value: int) -> Value:
    return wrap(cast_value(value, _WORD))


# ---- polynomials over GF(2), as integers: bit i is the coefficient of x^i ----


@lru_cache(maxsize=512)
def _power(exponent: int) -> int:
    """x^exponent modulo the polynomial of the turn."""
    found, base = 1, 2
    while exponent:
        found = _product(found, base) if exponent & 1 else found
        base, exponent = _product(base, base), exponent >> 1
    return found


def _product(left: int, right: int) -> int:
    total, modulus = 0, _polynomial()
    while right:
        total ^= left if right & 1 else 0
        left, right = left << 1, right >> 1
        left ^= modulus if left >> _BITS else 0
    return total


@lru_cache(maxsize=1)
def _polynomial() -> int:
    """The polynomial of the turn: the shortest recurrence of one bit of its states (E. Berlekamp and J.
    Massey's algorithm), of degree 160 as its period is 2^160 - 1."""
    bits, words = [], [1, 0, 0, 0, 0]
    for _ in range(2 * _BITS):
        bits.append(words[0] & 1)
        mixed = words[0] ^ words[0] >> 2
        words = [*words[1:], (words[4] ^ words[4] << 4 ^ mixed ^ mixed << 1) & _LOW]
    current, previous, length, shift = 1, 1, 0, 1
    for place in range(len(bits)):
        gap = sum(bits[place - i] for i in range(length + 1) if current >> i & 1) & 1
        if gap and 2 * length <= place:
            current, previous, length, shift = current ^ previous << shift, current, place + 1 - length, 1
            continue
        current ^= previous << shift if gap else 0
        shift += 1
    assert length == _BITS, length
    return int(f"{current:0{_BITS + 1}b}"[::-1], 2)
