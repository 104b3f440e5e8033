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

from tilec.backends.cpu.bit_numbers import bit_number
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


def in_place(groups: GroupNumbers) -> GroupNumbers | None:
    """Numbers of words as fields that stay where they are in the word: a mask and a conversion make each, as
    many ``times`` what it is as its lowest bit has, and all numbers share what is taken off them. Fields with
    signs have none once their upper bits are flipped. None where integers are no words, or numbers are
    something else than a field and a number that all share.

    float32((word >> 4 & 15) - 8)          16 * (x + 8) = float32(word & 240)
    """
    is_word = dtype_of(groups.integer) in (_WORD, f"u{_WORD}")
    fields = [field_of(number) for number in groups.numbers] if is_word else []
    known = [field for field in fields if field is not None]
    if not known or len(known) < len(fields) or len({(field.offset, field.signed) for field in known}) > 1:
        return None
    flipped = reduce(or_, (field.upper for field in known)) if known[0].signed else 0
    offset = tirx.const(known[0].offset, "float32") * groups.scale
    return replace(
        groups,
        numbers=tuple(field.in_place(groups.integer) for field in known),
        times=tuple(field.times for field in known),
        flipped=flipped,
        offset=offset if groups.offset is None else groups.offset + offset,
    )


@dataclass(frozen=True)
class Field:
    """A number of a word: ``bits`` of it from bit ``first`` on plus an ``offset``. They are ``signed`` where
    their upper bit counts below 0, which is in the offset then."""

    first: int
    bits: int
    offset: float
    signed: bool

    @property
    def is_plain(self) -> bool:
        """Whether it is the number itself."""
        return not self.signed and self.offset == 0

    @property
    def upper(self) -> int:
        """The word with its upper bit alone."""
        return 1 << self.first + self.bits - 1

    @property
    def times(self) -> int:
        """How many times as large the field is in its place; the one that has the sign is shifted down."""
        return 1 if self.first + self.bits == BYTE * _BYTES else 1 << self.first

    def in_place(self, word: Var) -> Expr:
        """The field of ``word``, in float32."""
        kind, mask = dtype_of(word), (1 << self.bits) - 1
        if self.times == 1:
            field = (word >> tirx.const(self.first, kind) if self.first else word) & tirx.const(mask, kind)
        else:
            field = word & tirx.const(mask << self.first, kind)
        return cast_to(cast_to(field, _WORD), "float32")


def field_of(number: Expr) -> Field | None:
    """The field that a number of a word is, plus a number; None where it is something else."""
    found = bit_number(number)
    if found is None:
        return None
    half, numbers = found.choices // 2, found.numbers
    for signed in (False, True):
        moved = [numbers[at ^ half] for at in range(found.choices)] if signed else numbers
        if moved == [moved[0] + at for at in range(found.choices)]:
            return Field(found.shift, found.choices.bit_length() - 1, moved[0], signed)
    return None


def _uncast(expr: Expr) -> Expr:
    """What an expression is as a number up to `_HELD`."""
    while isinstance(expr, tirx.Cast) and dtype_of(expr) in _HOLDING:
        expr = expr.value
    return expr
