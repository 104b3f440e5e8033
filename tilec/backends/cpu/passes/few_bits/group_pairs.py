"""Sums of groups whose words are multiplied by halves: pairs of bfloat16, which lie 16 bits apart in a word.

own[p] += steps[t] * (number(word >> 0) * float32(planes[t, 0, 2 * p])
                      + number(word >> 16) * float32(planes[t, 0, 2 * p + 1]) + ...)

A float16 activation is the sum of two bfloat16 numbers: what it is rounded to, and what that leaves of its
eleven bits; an infinite one leaves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.bit_numbers import bit_number, has_tables, pair_form
from tilec.backends.cpu.passes.few_bits.group_bytes import byte_sums
from tilec.backends.cpu.passes.few_bits.group_sums import GroupProduct, GroupSums
from tilec.backends.cpu.passes.few_bits.group_tiles import new_tile
from tilec.backends.cpu.products.forms.byte_words import BYTES
from tilec.ir.exprs import cast_to, dtype_of
from tilec.ir.nodes import Bind, Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Stmt
    from tilec.targets import Target

#: bfloat16 numbers that one of a type is the sum of.
_PARTS = {"bfloat16": 1, "float16": 2}
_HALF = 16
#: More than any finite float16, a number of few bits.
_BOUND = 65536.0


def sums_of(product: GroupProduct, target: Target, near: bool = False) -> GroupSums:
    """What takes the place of ``product``: sums of bytes where it adds up integers, by pairs where the target
    has an instruction for them, the activations are 16-bit floats and bfloat16 holds the numbers of whole
    words. ``near``: for activations that are finite, of which none is tiny."""
    if dtype_of(product.activation) in BYTES:
        return byte_sums(product, target)
    sums = GroupSums(product, has_tables(target), near)
    if pair_form(target) is None or dtype_of(product.activation) not in _PARTS:
        return sums
    pairs = _pairs(sums)
    return sums if pairs is None else PairSums(product, pairs)


def _pairs(sums: GroupSums) -> list[tuple[int, int]] | None:
    """Which numbers of a word lie 16 bits apart; None where some have no other one, or lanes are too few."""
    found = [bit_number(number) for number in sums.groups.numbers]
    at = {number.shift: place for place, number in enumerate(found) if number is not None}
    if sums.lanes != _HALF or len(at) < len(found):
        return None
    values = {number.values for number in found if number is not None}
    pairs = [(place, at.get(shift + _HALF)) for shift, place in at.items() if shift < _HALF]
    known = [(low, high) for low, high in pairs if high is not None]
    return known if len(values) == 1 and 2 * len(known) == len(found) else None


class PairSums(GroupSums):
    """`GroupSums` by ``pairs`` of numbers of a word."""

    def __init__(self, product: GroupProduct, pairs: list[tuple[int, int]]) -> None:
        self.pairs, self.parts = pairs, _PARTS[dtype_of(product.activation)]
        self.bytes = 2 * self.parts
        super().__init__(product, tables=True)

    def _planes(self) -> Var:
        count = self.parts * len(self.pairs)
        return new_tile("planes", self.rows, self.vectors, count, 2 * self.lanes, dtype="bfloat16")

    def _parted(self, row: int) -> Stmt:
        """``planes`` = the parts of ``whole``, those of a pair side by side."""
        vector, lane = tirx.Var("v", "int32"), tirx.Var("p", "int32")
        integer = vector * self.lanes + lane
        body: list[Stmt] = []
        for number, pair in enumerate(self.pairs):
            values = [self._as_it_lies(integer, place) for place in pair]
            for part in range(self.parts):
                names = [tirx.Var("part", "float32") for _ in values]
                body += (Bind(name, value, loc=self.loc) for name, value in zip(names, values, strict=True))
                for half, name in enumerate(names):
                    place = (tirx.const(row, "int32"), vector, self._at(number, part), lane * 2 + half)
                    body.append(Store(self.planes, place, cast_to(name, "bfloat16"), loc=self.loc))
                values = [_left(name) for name in names]
        return self._in_vectors(vector, self._each((lane,), (self.lanes,), *body))

    def _held(self, row: int, vector: Expr, plane: int, lane: Expr) -> Expr:
        """The activation as it lies: ``planes`` has its parts."""
        return self._as_it_lies(vector * self.lanes + lane, plane)

    def _at(self, number: int, part: int) -> Expr:
        return tirx.const(number * self.parts + part, "int32")

    def _places(self) -> range:
        """What is multiplied at once: pairs."""
        return range(len(self.pairs))

    def _named(self, numbers: list[Expr], place: int, body: list[Stmt]) -> list[Expr]:
        """The numbers of a pair: they have no names, but are looked up together."""
        return [numbers[at] for at in self.pairs[place]]

    def _terms(
        self, numbers: Sequence[Expr], row: int, vector: Expr, place: int, lane: Expr
    ) -> list[list[Expr]]:
        """Both products of a pair, one behind the other, for each part of the activations."""
        return [
            [
                number * cast_to(self._element(row, vector, self._at(place, part), lane, half), "float32")
                for half, number in enumerate(numbers)
            ]
            for part in range(self.parts)
        ]

    def _element(self, row: int, vector: Expr, plane: Expr, lane: Expr, half: int) -> Expr:
        return tirx.BufferLoad(self.planes, [tirx.const(row, "int32"), vector, plane, lane * 2 + half])


def _left(value: Var) -> Expr:
    """What rounding to bfloat16 leaves of a finite number; 0 of others."""
    rest = value - cast_to(cast_to(value, "bfloat16"), "float32")
    finite = tirx.And(value > -_BOUND, value < _BOUND)
    return tirx.if_then_else(finite, rest, tirx.const(0.0, "float32"))
