"""Sums of products of bytes and of numbers of few bits that bytes hold: integers, of which lanes add up four
neighbours at a time.

own[p] += (number of stored[4 * p] - least) * planes[t, 0, 4 * p] + ... of stored[4 * p + 3] ...
                                                  own[p] begins with least * (the sum of its activations)

Less the least of them numbers have no sign, as instructions for products of bytes want one operand. Sums wrap
around at 32 bits as those of the product do, so that results are the same bits. Where groups have scales, so
have the sums of a step:

part = starts[t, p] + (number of stored[4 * p] - least) * planes[t, 0, 4 * p] + ... of stored[4 * p + 3] ...
own[p] += float32(part) * steps[t]                starts[t, p] = least * (the sum of the step's activations)
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import TensorLoad

from tilec.backends.cpu.passes.few_bits.group_numbers import BYTE, bits_of, simplified
from tilec.backends.cpu.passes.few_bits.group_sums import GroupSums
from tilec.backends.cpu.passes.few_bits.group_tiles import load_at, new_tile
from tilec.backends.cpu.products.forms.byte_words import BYTES, byte_form
from tilec.backends.cpu.products.packing import whole_region
from tilec.ir.analysis.numbers.ranges import bounds
from tilec.ir.exprs import cast_to, dtype_of, int32, same, substitute
from tilec.ir.nodes import Alloc, Bind, Fill, Parallel, Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tvm.ir import Expr, Var

    from tilec.backends.cpu.passes.few_bits.group_numbers import GroupNumbers
    from tilec.backends.cpu.passes.few_bits.group_sums import GroupProduct
    from tilec.backends.cpu.passes.few_bits.group_tiles import Column
    from tilec.ir.nodes import Stmt
    from tilec.targets import Target

#: Rows of activations that are multiplied together at most; those of bytes of one number in two parts, of
#: which one row takes groups that are long (docs/performance/cpu-quantised.md).
_ROWS, _ROWS_IN_PARTS, _LONG = 8, 4, 128
#: The type of sums of products.
_KIND = "int32"
#: Bytes of a lane.
_WORD = 4
#: Rows whose sums are so few that products would wait for them: such rows have one for each number of a byte.
_CHAINED = 4


def integers_of_lanes(activation: Expr) -> int:
    """How many stored integers a lane has where ``activation`` is multiplied."""
    return _WORD if dtype_of(activation) in BYTES else 1


def are_bytes(activation: Expr, groups: GroupNumbers, target: Target) -> bool:
    """Whether lanes add up such products: elements of a tensor, which are 0 beyond it, and bytes of several
    numbers, or of one where groups have scales, by an instruction that the target has."""
    if not isinstance(activation, TensorLoad) or dtype_of(activation) not in BYTES:
        return False
    scaled = not same(groups.scale, tirx.const(1.0, "float32"))
    stored = (groups.each > 1 or scaled) and bits_of(groups.stored) == BYTE
    alone = not groups.shared and not groups.tables
    return stored and alone and byte_form(target, target.lanes(32)) is not None


def most_rows(groups: GroupNumbers, target: Target) -> int:
    """Rows of bytes for which such sums are ahead of tiles of weights. Where 16 bits hold sums of two
    products on their way, bytes of one number take them in two parts."""
    form = byte_form(target, target.lanes(32))
    if groups.each > 1 or form is None or form.name != "pmaddwd":
        return _ROWS
    return 1 if groups.size >= _LONG else _ROWS_IN_PARTS


def byte_sums(product: GroupProduct, target: Target) -> ByteSums:
    """What takes the place of ``product``, whose operands are bytes."""
    kind = ByteSums if product.sums == _KIND else ScaledByteSums
    return kind(product, target)


class ByteSums(GroupSums):
    """`GroupSums` of integers; ``least`` is what is taken off numbers. Pieces have 8192 activations of one
    row, as those of pairs."""

    bytes, word, kind = 2, _WORD, _KIND

    def __init__(self, product: GroupProduct, target: Target) -> None:
        self.held = dtype_of(product.activation)
        self.numbers = [_as_integer(number) for number in product.groups.numbers]
        super().__init__(product, tables=False)
        self.least = self._least(target)
        self.starts = new_tile("starts", *self._start_shape(), dtype=_KIND)
        self.chains = self.groups.each if self.rows <= _CHAINED else 1

    def _start_shape(self) -> tuple[int, ...]:
        """Of what sums begin with: those of a row and a lane."""
        return (self.rows, self.lanes)

    def _start(self, row: int, step: Expr, lane: Var) -> TensorLoad:
        """What the sum of a lane begins with in front of a step."""
        return tirx.BufferLoad(self.starts, [int32(row), lane])

    def _least(self, target: Target) -> int:
        """The least number where activations have signs, too; else 0. Bytes of one number keep their signs
        where the instruction wants signs of both."""
        form = byte_form(target, target.lanes(32))
        if self.groups.each == 1 and form is not None and form.name == "sdot":
            return 0
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
        filled = [*super()._activations(), Fill(whole_region(self.starts), int32(0), loc=self.loc)]
        if self.least == 0:
            return filled
        step, lane = tirx.Var("t", "int32"), tirx.Var("p", "int32")
        stores = (self._started(row, step, lane) for row in range(self.rows))
        return [*filled, self._in_steps(step, self._each((lane,), (self.lanes,), *stores))]

    def _started(self, row: int, step: Var, lane: Var) -> Store:
        """Adds what a lane multiplies in a step, times the least number, to what its sum begins with."""
        terms = [
            term
            for part in self._parts()
            for plane in range(self.groups.each)
            for term in self._bytes(row, step, part, plane, lane)
        ]
        start = self._start(row, step, lane)
        value = start + reduce(add, terms) * int32(self.least)
        return Store(self.starts, tuple(start.indices), value, loc=self.loc)

    def _bytes(self, row: int, step: Var, part: int, plane: int, lane: Var) -> list[Expr]:
        """The activations that four numbers of a lane are multiplied by."""
        vector = step * len(self._parts()) + part
        return [cast_to(self._held(row, vector, plane, lane * _WORD + byte), _KIND) for byte in range(_WORD)]

    def _parted(self, row: int) -> Stmt:
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
        return self._in_vectors(vector, self._each((at,), (size,), *stores))

    def _columns(self, at: tuple[Expr, ...]) -> list[Stmt]:
        """Adds the groups of a piece and a column to ``total``."""
        step, lane = tirx.Var("t", "int32"), tirx.Var("p", "int32")
        own = [
            [new_tile("own", self.lanes, dtype=self.kind) for _ in range(self.chains)]
            for _ in range(self.rows)
        ]
        started = (
            Store(chains[0], (lane,), self._start(row, int32(0), lane), loc=self.loc)
            for row, chains in enumerate(own)
        )
        gained = (self._gained(row, at[0], tile, lane) for row, chains in enumerate(own) for tile in chains)
        return [
            *(Alloc(tile, loc=self.loc) for chains in own for tile in chains),
            self._each((lane,), (self.lanes,), *started),
            *(self._cleared(tile) for chains in own for tile in chains[1:]),
            self._in_steps(step, self._each((lane,), (self.lanes,), *self._products(step, lane, own))),
            self._each((lane,), (self.lanes,), *gained),
        ]

    def _products(self, step: Var, lane: Var, own: Sequence[Sequence[Var]]) -> Iterator[Store]:
        """Adds the products of a step to sums of their ``own`` for each row: numbers of a byte to one each,
        or all to one."""
        for row, chains in enumerate(own):
            for chain, tile in enumerate(chains):
                planes = range(chain, self.groups.each, len(chains))
                value = self._products_of(row, step, lane, planes, load_at(tile, lane))
                yield Store(tile, (lane,), value, loc=self.loc)

    def _products_of(self, row: int, step: Var, lane: Var, planes: Iterable[int], first: Expr) -> Expr:
        """``first`` plus the products of the numbers of a step at some ``planes`` of their bytes."""
        terms = (
            number * activation
            for part in self._parts()
            for plane in planes
            for number, activation in self._pairs(row, step, part, plane, lane)
        )
        return reduce(add, terms, first)

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
        return analyzer.simplify(cast_to(number, _KIND) - self.least)


class ScaledByteSums(ByteSums):
    """`ByteSums` whose steps are scaled, float32."""

    kind = "float32"

    def _start_shape(self) -> tuple[int, ...]:
        return (self.rows, self.count // self.together, self.lanes)

    def _start(self, row: int, step: Expr, lane: Var) -> TensorLoad:
        return tirx.BufferLoad(self.starts, [int32(row), step, lane])

    def _columns(self, at: tuple[Expr, ...]) -> list[Stmt]:
        return GroupSums._columns(self, at)

    def _step(self, step: Var, columns: Sequence[Column]) -> Parallel:
        lane, (column,) = tirx.Var("p", "int32"), columns
        body: list[Stmt] = []
        for row, tile in enumerate(column.own):
            part, start = tirx.Var("part", _KIND), self._start(row, step, lane)
            value = self._products_of(row, step, lane, range(self.groups.each), start)
            scale = load_at(column.steps.scale(row), self._group(step, lane))
            gained = cast_to(part, self.kind) * scale + load_at(tile, lane)
            body += (Bind(part, value, loc=self.loc), Store(tile, (lane,), gained, loc=self.loc))
        return self._each((lane,), (self.lanes,), *body)


def _as_integer(number: Expr) -> Expr:
    """A number as it was before it became a float."""
    return number.value if isinstance(number, tirx.Cast) else number
