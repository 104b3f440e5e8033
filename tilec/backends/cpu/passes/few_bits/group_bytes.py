"""Sums of products of bytes and of numbers of few bits that bytes hold: integers, of which lanes add up four
neighbours at a time.

own[p] += (number of stored[4 * p] - least) * planes[t, 0, 4 * p] + ... of stored[4 * p + 3] ...
                                                  own[p] begins with least * (the sum of its activations)

Less the least of them numbers have no sign, as instructions for products of bytes want one operand. Sums wrap
around at 32 bits as those of the product do, so that results are the same bits.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import TensorLoad

from tilec.backends.cpu.passes.few_bits.group_numbers import BYTE, bits_of, simplified
from tilec.backends.cpu.passes.few_bits.group_sums import GroupSums, new_tile
from tilec.backends.cpu.products.byte_words import BYTES, byte_form
from tilec.ir.analysis.ranges import bounds
from tilec.ir.exprs import cast_to, dtype_of, int32, same, substitute
from tilec.ir.nodes import Alloc, Parallel, Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tvm.ir import Expr, Var

    from tilec.backends.cpu.passes.few_bits.group_numbers import GroupNumbers
    from tilec.backends.cpu.passes.few_bits.group_sums import GroupProduct
    from tilec.ir.nodes import Stmt
    from tilec.targets import Target

#: Bytes of a lane.
_WORD = 4
#: Rows whose sums are so few that products would wait for them: such rows have one for each number of a byte.
_CHAINED = 4


def integers_of_lanes(activation: Expr) -> int:
    """How many stored integers a lane has where ``activation`` is multiplied."""
    return _WORD if dtype_of(activation) in BYTES else 1


def are_bytes(activation: Expr, groups: GroupNumbers, target: Target) -> bool:
    """Whether lanes add up such products: elements of a tensor, which are 0 beyond it, and numbers without a
    scale of which bytes hold several, by an instruction that the target has."""
    if not isinstance(activation, TensorLoad) or dtype_of(activation) not in BYTES:
        return False
    plain = same(groups.scale, tirx.const(1.0, "float32")) and not groups.shared and not groups.tables
    stored = groups.each > 1 and bits_of(groups.stored) == BYTE
    return plain and stored and byte_form(target, target.lanes(32)) is not None


class ByteSums(GroupSums):
    """`GroupSums` of integers; ``least`` is what is taken off numbers. Pieces have 8192 activations of one
    row, as those of pairs."""

    bytes, word, kind = 2, _WORD, "int32"

    def __init__(self, product: GroupProduct) -> None:
        self.held = dtype_of(product.activation)
        self.numbers = [_as_integer(number) for number in product.groups.numbers]
        super().__init__(product, tables=False)
        self.least = self._least()
        self.starts = new_tile("starts", self.rows, self.lanes, dtype=self.kind)
        self.chains = self.groups.each if self.rows <= _CHAINED else 1

    def _least(self) -> int:
        """The least number where activations have signs, too; else 0."""
        found = min(bounds(number, sym.Analyzer())[0] for number in self.numbers)
        return min(found, 0) if self.held == "int8" else 0

    def _form(self) -> tuple[GroupNumbers, int]:
        groups = self.product.groups
        return groups, self._together(groups) or 1

    def _planes(self) -> Var:
        size = self.lanes * _WORD
        return new_tile("planes", self.rows, self.vectors, self.groups.each, size, dtype=self.held)

    def _kept(self) -> list[Var]:
        return [self.planes, self.starts]

    def _activations(self) -> list[Stmt]:
        """Fills ``planes`` and ``starts`` with those of a piece."""
        filled = [*super()._activations(), self._cleared(self.starts)]
        if self.least == 0:
            return filled
        step, lane = tirx.Var("t", "int32"), tirx.Var("p", "int32")
        stores = (self._started(row, step, lane) for row in range(self.rows))
        return [*filled, self._in_steps(step, self._each((lane,), (self.lanes,), *stores))]

    def _in_steps(self, step: Var, stmt: Stmt) -> Stmt:
        """``stmt`` for each step of a piece."""
        return self._serial(step, self._steps_of_piece(), [stmt])

    def _started(self, row: int, step: Var, lane: Var) -> Store:
        """Adds what a lane multiplies in a step, times the least number, to what its sum begins with."""
        terms = [
            term
            for part in self._parts()
            for plane in range(self.groups.each)
            for term in self._bytes(row, step, part, plane, lane)
        ]
        place = (int32(row), lane)
        value = tirx.BufferLoad(self.starts, list(place)) + reduce(add, terms) * int32(self.least)
        return Store(self.starts, place, value, loc=self.loc)

    def _bytes(self, row: int, step: Var, part: int, plane: int, lane: Var) -> list[Expr]:
        """The activations that four numbers of a lane are multiplied by."""
        vector = step * len(self._parts()) + part
        return [
            cast_to(self._held(row, vector, plane, lane * _WORD + byte), self.kind) for byte in range(_WORD)
        ]

    def _parted(self, row: int) -> Parallel:
        """``planes`` = ``whole`` by the place of a number in its byte, vector by vector of bytes."""
        vector, at, size = tirx.Var("v", "int32"), tirx.Var("p", "int32"), self.lanes * _WORD
        stores = (
            Store(
                self.planes,
                (int32(row), vector, int32(plane), at),
                self._as_it_lies(vector * size + at, plane),
                loc=self.loc,
            )
            for plane in range(self.groups.each)
        )
        return self._each((vector, at), (self.vectors, size), *stores)

    def _column(self) -> list[Stmt]:
        """Adds the groups of a piece and a column to ``total``."""
        step, lane = tirx.Var("t", "int32"), tirx.Var("p", "int32")
        own = [
            [new_tile("own", self.lanes, dtype=self.kind) for _ in range(self.chains)]
            for _ in range(self.rows)
        ]
        started = (self._start(row, chains[0], lane) for row, chains in enumerate(own))
        gained = (self._gained(row, tile, lane) for row, chains in enumerate(own) for tile in chains)
        return [
            *(Alloc(tile, loc=self.loc) for chains in own for tile in chains),
            self._each((lane,), (self.lanes,), *started),
            *(self._cleared(tile) for chains in own for tile in chains[1:]),
            self._in_steps(step, self._each((lane,), (self.lanes,), *self._products(step, lane, own))),
            self._each((lane,), (self.lanes,), *gained),
        ]

    def _start(self, row: int, tile: Var, lane: Var) -> Store:
        """Lets the sums of a row begin with what ``starts`` has."""
        return Store(tile, (lane,), tirx.BufferLoad(self.starts, [int32(row), lane]), loc=self.loc)

    def _products(self, step: Var, lane: Var, own: Sequence[Sequence[Var]]) -> Iterator[Store]:
        """Adds the products of a step to sums of their ``own`` for each row: numbers of a byte to one each,
        or all to one."""
        for row, chains in enumerate(own):
            for chain, tile in enumerate(chains):
                terms = (
                    number * activation
                    for part in self._parts()
                    for plane in range(chain, self.groups.each, len(chains))
                    for number, activation in self._pairs(row, step, part, plane, lane)
                )
                value = reduce(add, terms, tirx.BufferLoad(tile, [lane]))
                yield Store(tile, (lane,), value, loc=self.loc)

    def _pairs(self, row: int, step: Var, part: int, plane: int, lane: Var) -> Iterator[tuple[Expr, Expr]]:
        """Four numbers of a lane, each with its activation."""
        first = (lane + part * self.lanes) * _WORD
        for byte, activation in enumerate(self._bytes(row, step, part, plane, lane)):
            yield self._number(step, first + byte, plane), activation

    def _number(self, step: Var, at: Expr, plane: int) -> Expr:
        """Number ``plane`` of byte ``at`` of a step, less the least one."""
        groups, analyzer = self.groups, sym.Analyzer()
        group = step if self.together == 1 else step * self.together + at // groups.width
        values = {groups.group: self.piece * self.count + group, self.product.column: self.col}
        stored = substitute(groups.read(at if self.together == 1 else at % groups.width), values)
        number = substitute(self.numbers[plane], {groups.integer: simplified(stored, analyzer)})
        return analyzer.simplify(cast_to(number, self.kind) - self.least)


def _as_integer(number: Expr) -> Expr:
    """A number as it was before it became a float."""
    return number.value if isinstance(number, tirx.Cast) else number
