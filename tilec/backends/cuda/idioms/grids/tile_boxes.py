"""Which boxes of tensors the trips of a loop over tiles write, and whether two of them may meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import ir as tvm_ir
from tvm import sym, tirx

from tilec.ir.exprs import (
    dtype_of,
    inlined,
    int_value,
    linear_in,
    operands,
    same,
    uses,
    walk,
)
from tilec.ir.nodes import Bind, Block, Copy, For, Parallel, Pipelined, Stmt, Store, children, is_global
from tilec.ir.traits import loads_of
from tilec.lowering.analysis.distinct import distinct
from tilec.lowering.analysis.whole_numbers import WholeNumbers, is_zero

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod)


@dataclass(frozen=True, eq=False)
class Box:
    """Elements of a tensor from ``start`` on, ``extent`` on each axis, in whole numbers; None for what is not
    known."""

    buffer: Var
    start: tuple[Expr | None, ...]
    extent: tuple[int | None, ...]
    is_written: bool

    def same_as(self, other: Box) -> bool:
        """Whether both are known to be the same elements."""
        pairs = zip(self.start, other.start, strict=True)
        alike = all(a is not None and b is not None and is_zero(a - b) for a, b in pairs)
        return alike and None not in self.extent and self.extent == other.extent


def are_apart(block: Block, tile: Var, count: Expr) -> bool:
    """Whether runs of a block for different numbers ``tile``, from 0 to ``count``, touch different elements
    of the tensors that one of them writes."""
    numbers = WholeNumbers()
    boxes = list(_Boxes(numbers).of(block, {}, {}))
    written = [box for box in boxes if box.is_written]
    name = numbers.name(tile)
    if not all(_Digits(box, name, int_value(count)).tell_the_tile() for box in written):
        return False
    groups = {box.buffer: box for box in written}
    return all(box.same_as(groups[box.buffer]) for box in boxes if box.buffer in groups)


class _Boxes:
    """The boxes of tensors that statements read and write."""

    def __init__(self, numbers: WholeNumbers) -> None:
        self._numbers = numbers

    def of(self, block: Block, names: Mapping[Var, Expr], ranges: Mapping[Var, int | None]) -> Iterator[Box]:
        """Those of a block; ``names`` stand for values, the variables of loops have so many values."""
        names = dict(names)
        for stmt in block:
            if isinstance(stmt, Bind):
                names[stmt.var] = inlined(stmt.value, names)
            yield from self._own(stmt, names, ranges)
            for inner in children(stmt):
                yield from self.of(inner, names, {**ranges, **self._ranges(stmt)})

    def _ranges(self, stmt: Stmt) -> dict[Var, int | None]:
        if isinstance(stmt, Parallel):
            names = map(self._numbers.name, stmt.vars)
            return dict(zip(names, map(int_value, stmt.extents), strict=True))
        return {self._numbers.name(stmt.var): None} if isinstance(stmt, (For, Pipelined)) else {}

    def _own(self, stmt: Stmt, names: Mapping[Var, Expr], ranges: Mapping[Var, int | None]) -> Iterator[Box]:
        """The boxes that a statement itself names."""
        found: list[tuple[Var, bool, Sequence[Expr], Sequence[int | None]]] = []
        if isinstance(stmt, Copy):
            for region in (stmt.src, stmt.dst):
                sizes = tuple(map(int_value, region.extent))
                found.append((region.buffer, region is stmt.dst, region.start, sizes))
        if isinstance(stmt, Store):
            found.append((stmt.buffer, True, stmt.indices, (1,) * len(stmt.indices)))
        for load in loads_of(stmt):
            found.append((load.source, False, tuple(load.indices), (1,) * len(load.indices)))
        for buffer, is_written, start, extents in found:
            if not is_global(buffer):
                continue
            places = [self._numbers.of(inlined(index, names)) for index in start]
            axes = [_axis(place, size, ranges) for place, size in zip(places, extents, strict=True)]
            yield Box(buffer, tuple(at for at, _ in axes), tuple(size for _, size in axes), is_written)


def _axis(
    place: Expr | None, size: int | None, ranges: Mapping[Var, int | None]
) -> tuple[Expr | None, int | None]:
    """Where the elements of an axis start, and how many there are over all values of loop variables."""
    inner = [] if place is None else [var for var in ranges if uses(place, (var,))]
    if place is None or size is None or not inner:
        return place, size
    linear = linear_in(place, inner)
    if not linear:
        return place, None
    for factor, var in zip(linear[:-1], inner, strict=True):
        step, count = int_value(factor), ranges[var]
        if step is None or step < 0 or count is None:
            return place, None
        size += step * (count - 1)
    return linear[-1], size


class _Digits:
    """What the place of a box tells of the number of its tile."""

    def __init__(self, box: Box, tile: Var, count: int | None) -> None:
        self._tile, self._count = tile, count
        self._analyzer = sym.Analyzer()
        most = (1 << 31) - 1 if count is None else max(count, 1)
        ends = (tirx.const(end, dtype_of(tile)) for end in (0, most))
        self._analyzer.bind(tile, tvm_ir.Range(*ends))
        self._digits: list[Expr] = []
        for start, extent in zip(box.start, box.extent, strict=True):
            if extent is not None and start is not None:
                self._take(start, extent)

    def tell_the_tile(self) -> bool:
        """Whether boxes of different tiles never meet."""
        if self._tells(self._tile):
            return True
        few = self._count is not None and bool(self._digits)
        return few and distinct(self._digits, (self._tile,), (self._count or 0,))

    def _take(self, value: Expr, size: int) -> None:
        """Keeps what is known where boxes of ``size`` elements from ``value`` on do not meet."""
        if not uses(value, (self._tile,)):
            return
        if isinstance(value, tirx.Mul) and (int_value(value.b) or 0) >= size:
            self._take(value.a, 1)
        elif isinstance(value, (tirx.Add, tirx.Sub)) and not uses(value.b, (self._tile,)):
            self._take(value.a, size)
        elif isinstance(value, tirx.Add) and not uses(value.a, (self._tile,)):
            self._take(value.b, size)
        elif isinstance(value, tirx.Add) and size == 1:
            self._take_sum(value)
        elif size == 1:
            self._digits.append(value)

    def _take_sum(self, value: Expr) -> None:
        """Of a * n + b with b below n, both."""
        for high, low in ((value.a, value.b), (value.b, value.a)):
            if not isinstance(high, tirx.Mul) or not isinstance(low, tirx.FloorMod):
                continue
            for factor, scale in ((high.a, high.b), (high.b, high.a)):
                if not uses(scale, (self._tile,)) and self._is_at_most(low.b, scale):
                    self._take(factor, 1)
                    self._digits.append(low)
                    return
        self._digits.append(value)

    def _is_at_most(self, value: Expr, limit: Expr) -> bool:
        if same(value, limit):
            return True
        if isinstance(value, tirx.Min):
            return self._is_at_most(value.a, limit) or self._is_at_most(value.b, limit)
        numbers = int_value(value), int_value(limit)
        return None not in numbers and numbers[0] <= numbers[1]  # type: ignore[operator]

    def _tells(self, value: Expr) -> bool:
        """Whether the digits say what ``value`` is: they have it, or its quotient and its remainder by
        something that they say as well."""
        if any(same(value, digit) for digit in self._digits):
            return True
        if not uses(self._analyzer.simplify(value), (self._tile,)):
            return True
        nodes = [node for digit in self._digits for node in walk(digit) if isinstance(node, _DIVISIONS)]
        divisors = [node.b for node in nodes if same(node.a, value)]
        return any(
            self._knows(by)
            and self._tells(tirx.FloorDiv(value, by))
            and self._tells(tirx.FloorMod(value, by))
            for by in divisors
        )

    def _knows(self, value: Expr) -> bool:
        """Whether what a value has of the tile's number is known."""
        if not uses(value, (self._tile,)):
            return True
        parts = operands(value)
        return self._tells(value) or (bool(parts) and all(map(self._knows, parts)))
