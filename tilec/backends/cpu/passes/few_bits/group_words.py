"""Stored bytes of several numbers that lanes take four at a time, as words.

number of byte p       float32((int32(stored) >> 4 & 15) - 8)           for p = 4 * w + 1
->
number of word w       float32((word >> 12 & 15) - 8)

A lane of a vector has 32 bits: bytes are widened, words are not, and one load has four times the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.passes.few_bits.group_numbers import BYTE, bits_of
from tilec.backends.cpu.passes.few_bits.stored_tiles import CONVERTED
from tilec.ir.exprs import cast_to, dtype_of, int_value, transform

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.passes.few_bits.group_numbers import GroupNumbers

#: The type of a word, and its bytes.
_WORD, _BYTES = "int32", 4
_INTEGERS = ("int32", "uint32", "int64", "uint64", "int16", "uint16")
#: Types that hold every number up to this one.
_HOLDING, _HELD = (*CONVERTED, *_INTEGERS, "int8", "uint8"), 127


def in_words(groups: GroupNumbers) -> GroupNumbers | None:
    """``groups`` by words of four bytes; None where these hold one number each, or are no bytes, or groups no
    words."""
    if bits_of(groups.stored) != BYTE or groups.each == 1 or groups.width % _BYTES:
        return None
    word = tirx.Var("word", _WORD)
    parts = [_Part(groups.integer, word, BYTE * byte) for byte in range(_BYTES)]
    numbers = tuple(part.of(number) for part in parts for number in groups.numbers)
    return replace(groups, integer=word, numbers=numbers, joined=_BYTES)


@dataclass(frozen=True, eq=False)
class _Part:
    """``byte`` lies ``first`` bits up in ``word``."""

    byte: Var
    word: Var
    first: int

    def of(self, number: Expr) -> Expr:
        """``number`` by the word."""
        return transform(number, self._visit)

    def _visit(self, node: Expr) -> Expr | None:
        if node.same_as(self.byte):
            return cast_to(self.word >> tirx.const(self.first, _WORD), dtype_of(self.byte))
        inner = _uncast(node)
        found = self._bits(inner)
        if found is None or not (inner.same_as(node) or found[1] <= _HELD):
            return None
        shift, mask = found
        shifted = self.word >> tirx.const(self.first + shift, _WORD) if self.first + shift else self.word
        return cast_to(shifted & tirx.const(mask, _WORD), dtype_of(node))

    def _bits(self, node: Expr) -> tuple[int, int] | None:
        """How far ``node`` shifts the byte down, and what it masks then, with its sign if it has one; None
        where it does something else."""
        if isinstance(node, tirx.RShift) and dtype_of(self.byte).startswith("uint"):
            shift = self._shift(node)
            return None if shift is None else (shift, (1 << BYTE) - 1 >> shift)
        if not isinstance(node, tirx.BitwiseAnd):
            return None
        mask, shift = int_value(node.b), self._shift(node.a)
        if mask is None or shift is None or not 0 <= mask < 1 << BYTE - shift:
            return None
        return shift, mask

    def _shift(self, expr: Expr) -> int | None:
        """How far ``expr`` shifts the byte down; None where it is something else."""
        shift = int_value(expr.b) if isinstance(expr, tirx.RShift) else 0
        inner = expr.a if isinstance(expr, tirx.RShift) else expr
        while isinstance(inner, tirx.Cast) and dtype_of(inner) in _INTEGERS:
            inner = inner.value
        return shift if shift is not None and 0 <= shift < BYTE and inner.same_as(self.byte) else None


def with_signs(groups: GroupNumbers) -> GroupNumbers:
    """Numbers of words that are fields less half of their range, ``(word >> s & 15) - 8``, as fields with
    signs, once the upper bit of each is flipped: two shifts in place of a shift, a mask and a difference.
    ``groups`` where some are something else, or integers no words."""
    if dtype_of(groups.integer) != _WORD:
        return groups
    fields = [_offset_field(number, groups.integer) for number in groups.numbers]
    known = [field for field in fields if field is not None]
    if len(known) < len(fields):
        return groups
    numbers = tuple(cast_to(field.signed(groups.integer), "float32") for field in known)
    return replace(groups, numbers=numbers, flipped=reduce(or_, (field.upper for field in known)))


@dataclass(frozen=True)
class _Field:
    """``bits`` of a word from bit ``first`` on."""

    first: int
    bits: int

    @property
    def upper(self) -> int:
        """The word with its upper bit alone."""
        return 1 << self.first + self.bits - 1

    def signed(self, word: Var) -> Expr:
        """The field of ``word`` as a number with a sign."""
        above = BYTE * _BYTES - self.bits
        left = word << tirx.const(above - self.first, _WORD) if above > self.first else word
        return left >> tirx.const(above, _WORD)


def _offset_field(number: Expr, word: Var) -> _Field | None:
    """The field of a number ``float32((word >> s & mask) - half)``, taken off as an integer with a sign or as
    a float; None for another number."""
    inner = number.value if isinstance(number, tirx.Cast) else number
    masked = _uncast(inner.a) if isinstance(inner, tirx.Sub) else None
    if not isinstance(masked, tirx.BitwiseAnd) or dtype_of(inner).startswith("uint"):
        return None
    half = inner.b.value if isinstance(inner.b, tirx.FloatImm) else int_value(inner.b)
    mask, shifted = int_value(masked.b), masked.a
    shift = int_value(shifted.b) if isinstance(shifted, tirx.RShift) else 0
    held = shifted.a if isinstance(shifted, tirx.RShift) else shifted
    if mask is None or half is None or shift is None or mask & mask + 1 or 2 * half != mask + 1:
        return None
    kept = mask <= _HELD or masked.same_as(inner.a)
    return _Field(shift, mask.bit_length()) if kept and held.same_as(word) else None


def _uncast(expr: Expr) -> Expr:
    """What an expression is as a number up to `_HELD`."""
    while isinstance(expr, tirx.Cast) and dtype_of(expr) in _HOLDING:
        expr = expr.value
    return expr
