"""Which boxes of tensors the trips of a loop over tiles write, and whether two of them may meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import ir as tvm_ir
from tvm import sym, tirx

from tilec.backends.cuda.analysis.distinct import distinct
from tilec.backends.cuda.idioms.whole_numbers import WholeNumbers
from tilec.ir.exprs import (
    dtype_of,
    inlined,
    int_value,
    linear_in,
    loads,
    operands,
    same,
    same_all,
    uses,
    walk,
)
from tilec.ir.nodes import Bind, Block, Copy, For, Parallel, Pipelined, Region, Stmt, Store, children
from tilec.ir.traits import expressions, regions

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod)


@dataclass(frozen=True, eq=False)
class Box:
    """Elements of a tensor from ``start`` on, ``extent`` on each axis (None: of unknown number)."""

    buffer: Var
    start: tuple[Expr, ...]
    extent: tuple[int | None, ...]
    is_written: bool

    def same_as(self, other: Box) -> bool:
        """Whether both are known to be the same elements."""
        known = None not in self.extent and self.extent == other.extent
        return known and self.buffer.same_as(other.buffer) and same_all(self.start, other.start)


def boxes_of(block: Block) -> list[Box]:
    """The boxes of tensors that the statements of a block read and write, names inside it replaced."""
    return list(_boxes(block, {}, {}))


def are_apart(boxes: Sequence[Box], tile: Var, count: Expr) -> bool:
    """Whether trips of different numbers ``tile``, from 0 to ``count``, touch different elements of the
    tensors that one of them writes."""
    written = [box for box in boxes if box.is_written]
    if not all(_Digits(box, tile, int_value(count)).tell_the_tile() for box in written):
        return False
    groups = {box.buffer: box for box in written}
    return all(box.same_as(groups[box.buffer]) for box in boxes if box.buffer in groups)


def _boxes(block: Block, names: Mapping[Var, Expr], ranges: Mapping[Var, int | None]) -> Iterator[Box]:
    names = dict(names)
    for stmt in block:
        if isinstance(stmt, Bind):
            names[stmt.var] = inlined(stmt.value, names)
        yield from _own(stmt, names, ranges)
        for inner in children(stmt):
            yield from _boxes(inner, names, {**ranges, **_ranges(stmt)})


def _ranges(stmt: Stmt) -> dict[Var, int | None]:
    """How many values the variables of a loop have."""
    if isinstance(stmt, Parallel):
        return dict(zip(stmt.vars, map(int_value, stmt.extents), strict=True))
    if isinstance(stmt, (For, Pipelined)):
        return {stmt.var: None}
    return {}


def _own(stmt: Stmt, names: Mapping[Var, Expr], ranges: Mapping[Var, int | None]) -> Iterator[Box]:
    """The boxes that a statement itself names."""
    written: list[tuple[Var, tuple[Expr, ...]]] = []
    if isinstance(stmt, Copy):
        for region in regions(stmt):
            if region.buffer.scope().startswith("global"):
                yield _region(region, region is stmt.dst, names, ranges)
    if isinstance(stmt, Store) and stmt.buffer.scope().startswith("global"):
        written.append((stmt.buffer, stmt.indices))
    read = [
        (load.source, tuple(load.indices))
        for expr in expressions(stmt)
        for load in loads(expr)
        if load.source.scope().startswith("global")
    ]
    for place, (buffer, indices) in enumerate((*written, *read)):
        ends = [_axis(inlined(index, names), 1, ranges) for index in indices]
        yield Box(buffer, tuple(at for at, _ in ends), tuple(size for _, size in ends), place < len(written))


def _region(
    region: Region, is_written: bool, names: Mapping[Var, Expr], ranges: Mapping[Var, int | None]
) -> Box:
    ends = [
        _axis(inlined(start, names), int_value(extent), ranges)
        for start, extent in zip(region.start, region.extent, strict=True)
    ]
    return Box(region.buffer, tuple(at for at, _ in ends), tuple(size for _, size in ends), is_written)


def _axis(index: Expr, size: int | None, ranges: Mapping[Var, int | None]) -> tuple[Expr, int | None]:
    """Where the elements of an axis start, and how many there are over all values of loop variables."""
    inner = [var for var in ranges if uses(index, (var,))]
    if not inner:
        return index, size
    linear = linear_in(index, inner)
    steps = [int_value(factor) for factor in linear[:-1]]
    counts = [ranges[var] for var in inner]
    if not linear or size is None:
        return index, None
    for step, count in zip(steps, counts, strict=True):
        if step is None or step < 0 or count is None:
            return index, None
        size += step * (count - 1)
    return linear[-1], size


class _Digits:
    """What the place of a box tells of the number of its tile."""

    def __init__(self, box: Box, tile: Var, count: int | None) -> None:
        numbers = WholeNumbers()
        self._tile, self._count = numbers.name(tile), count
        self._analyzer = sym.Analyzer()
        most = (1 << 31) - 1 if count is None else max(count, 1)
        ends = (tirx.const(end, dtype_of(self._tile)) for end in (0, most))
        self._analyzer.bind(self._tile, tvm_ir.Range(*ends))
        self._digits: list[Expr] = []
        for start, extent in zip(box.start, box.extent, strict=True):
            value = numbers.of(start)
            if extent is not None and value is not None:
                self._take(value, extent)

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
