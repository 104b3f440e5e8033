"""Sums of groups of stored numbers in the place of a product: the statements that `sum_groups` writes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from operator import add
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.backends.cpu.passes.few_bits.finite_sums import if_finite_sums
from tilec.backends.cpu.passes.few_bits.group_numbers import simplified
from tilec.backends.cpu.passes.few_bits.group_tiles import LANES, Column, OfSteps, Words, load_at, new_tile
from tilec.backends.cpu.passes.few_bits.group_words import in_place, in_words
from tilec.backends.cpu.passes.place_tiles import ASKED
from tilec.backends.cpu.products.packing import whole_region
from tilec.ir.exprs import cast_to, dtype_of, int32, int_value, substitute
from tilec.ir.nodes import Alloc, Bind, Fill, For, Gemm, Parallel, Pipelined, Reduce, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tvm.ir import Expr, Var

    from tilec.backends.cpu.passes.few_bits.group_numbers import GroupNumbers
    from tilec.ir.nodes import Stmt

#: Bytes of activations that a piece has, those of all rows together: as many as the first cache holds beside
#: weights, more where several columns share what is loaded of them.
_HELD, _SHARED = 16384, 32768
#: Columns that are multiplied together at most, and sums of these and all rows; activations of one row that
#: have fewer bytes are loaded for each column (docs/performance/cpu-quantised.md).
_BESIDE, _SUMS, _WIDE = 4, 8, 4
#: Rows that numbers stay in their place for: sums of more want the registers of masks (the same page).
_PLACED = 2


@dataclass(frozen=True, eq=False)
class GroupProduct:
    """``rows`` of ``gemm`` of ``loop``: ``activation`` is that of ``row`` and ``k``, ``groups`` are the
    weights of ``column``, of which ``count`` lie in the tensor of the weights. ``tiles`` serve the loop
    alone. The loop has a multiple of ``together`` groups. Where ``gemm`` is ``turned``, weights are its first
    operand: its rows are columns here. Each trip, which is a group then, adds ``offset`` to the sum of a row
    and a column. ``scaled``: the loop scales the product of each trip as a whole."""

    loop: For | Pipelined
    gemm: Gemm
    row: Var
    column: Var
    k: Var
    activation: Expr
    groups: GroupNumbers
    count: Expr
    rows: int
    tiles: tuple[Var, ...]
    together: int
    turned: bool
    offset: Expr | None = None
    scaled: bool = False

    @property
    def sums(self) -> str:
        """The type of the sums of the product."""
        return str(self.gemm.c.buffer.dtype)

    def sum_at(self, row: Expr, column: Expr) -> tuple[Expr, Expr]:
        """Where the sum of a row of activations and a column is."""
        return (column, row) if self.turned else (row, column)


class GroupSums:
    """What takes the place of one product. A *piece* are trips of its loop whose activations are held, a
    *step* are groups that fill lanes. ``bytes`` are those of an activation as it is held, ``held`` is its
    type as it lies, ``kind`` that of sums, ``word`` how many integers of a group a lane has; ``tables``:
    lanes look numbers of few bits up. ``near``: activations are finite and none is tiny."""

    bytes, word = 4, 1
    held = kind = "float32"

    def __init__(self, product: GroupProduct, tables: bool, near: bool = False) -> None:
        self.product, self.loc = product, product.gemm.loc
        self.tables, self.near = tables, near
        self.rows, self.columns = product.rows, int_value(product.gemm.c.extent[not product.turned]) or 1
        self.depth = int_value(product.gemm.a.extent[1]) or 1
        self.beside = self._beside(tables)
        self.trips = self._trips()
        self.count = self.trips * self.depth // product.groups.size
        self.groups, self.together = self._form()
        self.width = self.groups.width * self.together
        self.lanes = min(LANES, self.width // self.word)
        self.piece, self.col = tirx.Var("c", "int32"), tirx.Var("j", "int32")
        self.vectors = self.count * self.groups.width // (self.lanes * self.word)
        self.whole = new_tile("whole", self.elements, dtype=self.held)
        self.planes = self._planes()
        self.sums = new_tile("sums", self.rows, self.count // self.together, self.lanes)
        self.total = new_tile("total", self.rows, self.columns, self.lanes, dtype=self.kind)

    def _beside(self, tables: bool) -> int:
        """Columns that are multiplied together: as many as registers hold sums of, where loads of activations
        bound."""
        shared = tables and (self.bytes == _WIDE or self.rows > 1)
        return min(_BESIDE, _SUMS // self.rows, self.columns) if shared else 1

    def _trips(self) -> int:
        """Trips of a piece, whole groups: no more than the loop has."""
        whole, loop = max(1, self.product.groups.size // self.depth), self.product.loop
        most = _SHARED if self.beside == _BESIDE else _HELD
        held = max(1, most // (self.rows * self.depth * self.bytes * whole)) * whole
        known = int_value(sym.Analyzer().simplify(loop.stop - loop.start))
        return held if known is None else max(1, min(held, known))

    def _form(self) -> tuple[GroupNumbers, int]:
        """The weights by the integers that lanes take, and how many groups fill lanes together."""
        plain = self.product.groups
        words = in_words(plain)
        together = 0 if words is None else self._together(words)
        groups = plain if words is None or not together else words
        few = self.rows <= _PLACED and not self.tables
        placed = in_place(groups) if self.near and few else None
        return placed or groups, together or self._together(plain) or 1

    def _together(self, groups: GroupNumbers) -> int:
        """How many groups fill lanes; 0 where pieces are no multiples of as many, or the loop is none."""
        full = LANES * self.word
        together = max(1, full // groups.width)
        fits = self.count % together == 0 == self.product.together % together
        return together if fits and groups.width * together % full == 0 else 0

    def _planes(self) -> Var:
        """The tile of activations as lanes multiply them."""
        return new_tile("planes", self.rows, self.vectors, self.groups.each, self.lanes)

    def stmts(self) -> list[Stmt]:
        """The statements in place of the loop."""
        body = [*self._activations(), *self._all_columns()]
        return [
            *(Alloc(tile, place=ASKED, loc=self.loc) for tile in self._kept()),
            Alloc(self.total, loc=self.loc),
            self._cleared(self.total),
            self._serial(self.piece, self.pieces, body),
            *self._results(),
        ]

    def _all_columns(self) -> list[Stmt]:
        """The loop over columns, some at a time, and that over those that are left."""
        count, first = cast_to(self.product.count, "int32"), int32(0)
        loops: list[Stmt] = []
        if self.beside > 1:
            several = tirx.Var("j", "int32")
            columns = self._columns(tuple(several * self.beside + at for at in range(self.beside)))
            times = over_parts(count, lambda part: tirx.floordiv(part, int32(self.beside)))
            loops.append(self._serial(several, times, columns))
            first = tirx.max(times * self.beside, int32(0))
        return [*loops, replace(self._serial(self.col, count, self._columns((self.col,))), start=first)]

    def _kept(self) -> list[Var]:
        """The tiles that hold activations, and what is made of them for all columns."""
        return [self.planes] if self.groups.offset is None else [self.planes, self.sums]

    @property
    def pieces(self) -> Expr:
        """How many pieces the loop has."""
        return tirx.floordiv(self._all_trips() + (self.trips - 1), int32(self.trips))

    def _all_trips(self) -> Expr:
        loop = self.product.loop
        return cast_to(loop.stop - loop.start, "int32")

    def _activations(self) -> list[Stmt]:
        """Fills ``planes`` with the activations of a piece."""
        stmts: list[Stmt] = [Alloc(self.whole, loc=self.loc)]
        for row in range(self.rows):
            stmts += [self._read(row), self._parted(row)]
            if self.groups.offset is not None:
                stmts.append(self._added(row))
        return stmts

    def _read(self, row: int) -> Stmt:
        """``whole`` = the activations of a piece and a row, as they lie."""
        step, inside = tirx.Var("t", "int32"), tirx.Var("i", "int32")
        size = self.groups.size * self.together
        at = step * size + inside
        store = Store(self.whole, (at,), self.activation(row, self.piece, at), loc=self.loc)
        return self._in_steps(step, self._each((inside,), (size,), store))

    def _in_steps(self, step: Var, stmt: Stmt) -> Stmt:
        """``stmt`` for each step of a piece."""
        return self._serial(step, self._steps_of_piece(), [stmt])

    @property
    def elements(self) -> int:
        """Activations of a row in a piece."""
        return self.count * self.groups.size

    def activation(self, row: int, piece: Expr, at: Expr) -> Expr:
        """Activation ``at`` of ``piece`` and ``row``, as it is held."""
        product = self.product
        trip = product.loop.start + cast_to(piece * self.trips + at // self.depth, dtype_of(product.loop.var))
        inside = {product.row: int32(row), product.loop.var: trip, product.k: at % self.depth}
        value = simplified(substitute(product.activation, inside), sym.Analyzer())
        return cast_to(value, self.held)

    def _as_it_lies(self, integer: Expr, number: int) -> Expr:
        """The activation of ``number`` of ``integer``, of all groups one, in ``whole``."""
        return load_at(self.whole, self.groups.element(integer, number))

    def _added(self, row: int) -> Stmt:
        """``sums`` = the activations that a lane multiplies in a step, added up."""
        step, lane, parts = tirx.Var("t", "int32"), tirx.Var("p", "int32"), self._parts()
        terms = (
            self._multiplied(self._held(row, step * len(parts) + part, plane, lane), plane)
            for part in parts
            for plane in range(self.groups.each)
        )
        store = Store(self.sums, (int32(row), step, lane), reduce(add, terms), loc=self.loc)
        return self._in_steps(step, self._each((lane,), (self.lanes,), store))

    def _held(self, row: int, vector: Expr, plane: int, lane: Expr) -> Expr:
        """The activation that number ``plane`` of a lane is multiplied by."""
        return tirx.BufferLoad(self.planes, [int32(row), vector, int32(plane), lane])

    def _parted(self, row: int) -> Stmt:
        """``planes`` = ``whole`` by the place of a number in its integer, vector by vector of integers."""
        vector, lane, each = tirx.Var("v", "int32"), tirx.Var("p", "int32"), self.groups.each
        integer = vector * self.lanes + lane
        stores = (
            Store(
                self.planes,
                (int32(row), vector, int32(plane), lane),
                self._divided(self._as_it_lies(integer, plane), plane),
                loc=self.loc,
            )
            for plane in range(each)
        )
        return self._in_vectors(vector, self._each((lane,), (self.lanes,), *stores))

    def _divided(self, activation: Expr, plane: int) -> Expr:
        """An activation, divided by how many times too large the number is that it is multiplied by."""
        times = self.groups.times[plane] if self.groups.times else 1
        return activation if times == 1 else activation * tirx.const(1.0 / times, "float32")

    def _multiplied(self, held: Expr, plane: int) -> Expr:
        """What ``_divided`` gave, as it was."""
        times = self.groups.times[plane] if self.groups.times else 1
        return held if times == 1 else held * tirx.const(float(times), "float32")

    def _in_vectors(self, vector: Var, stmt: Stmt) -> Stmt:
        """``stmt`` for each vector of integers of a piece."""
        return self._serial(vector, self._steps_of_piece() * len(self._parts()), [stmt])

    def _columns(self, at: tuple[Expr, ...]) -> list[Stmt]:
        """Adds the groups of a piece and some columns to ``total``."""
        step, lane = tirx.Var("t", "int32"), tirx.Var("p", "int32")
        columns = [self._column(column) for column in at]
        gained = (
            self._gained(row, column.at, tile, lane)
            for column in columns
            for row, tile in enumerate(column.own)
        )
        more = [(row, column.at, tile) for column in columns for row, tile in enumerate(column.more)]
        return [
            *(Alloc(tile, loc=self.loc) for column in columns for tile in column.tiles),
            self._steps(columns),
            *(self._offsets(row, at, tile) for row, at, tile in more),
            *(self._cleared(tile) for column in columns for tile in column.own),
            self._in_steps(step, self._step(step, columns)),
            self._each((lane,), (self.lanes,), *gained),
            *(self._more(row, at, tile) for row, at, tile in more),
        ]

    def _column(self, at: Expr) -> Column:
        """What one column has for itself."""
        rows = range(self.rows)
        more = [] if self.product.offset is None else [self._added_tile() for _ in rows]
        steps = OfSteps(self.groups, self.count, self.product.row, self.rows)
        return Column(at, steps, [new_tile("own", self.lanes) for _ in rows], more)

    def _added_tile(self) -> Var:
        """A tile of the offsets of the groups of a piece, as many as whole vectors of lanes have."""
        return new_tile("added", -(-self.count // self.lanes) * self.lanes)

    def _offsets(self, row: int, column: Expr, tile: Var) -> Parallel:
        """Fills a tile with what the groups of a piece add to the sum of a row and a column, then zeros."""
        product, group = self.product, tirx.Var("t", "int32")
        trip = product.loop.start + cast_to(self.piece * self.trips + group, dtype_of(product.loop.var))
        values = {product.row: int32(row), product.column: column, product.loop.var: trip}
        left = tirx.min(int32(self.count), self._all_trips() - self.piece * self.trips)
        value = tirx.if_then_else(
            group < left, substitute(product.offset, values), tirx.const(0.0, "float32")
        )
        return self._each((group,), (int(tile.shape[0]),), Store(tile, (group,), value, loc=self.loc))

    def _more(self, row: int, column: Expr, tile: Var) -> Parallel:
        """Adds the offsets of a piece to a sum."""
        lane = tirx.Var("p", "int32")
        place = (int32(row), column, lane)
        terms = (load_at(tile, lane + first) for first in range(0, int(tile.shape[0]), self.lanes))
        value = reduce(add, terms, tirx.BufferLoad(self.total, list(place)))
        return self._each((lane,), (self.lanes,), Store(self.total, place, value, loc=self.loc))

    def _steps_of_piece(self) -> Expr:
        """How many steps a piece has: as many as are held, or what is left of them."""
        held, size = self.count // self.together, self.groups.size * self.together
        left = tirx.floordiv(self._all_trips() * self.depth, int32(size)) - self.piece * held
        return tirx.min(int32(held), left)

    def _steps(self, columns: Sequence[Column]) -> Stmt:
        """Fills tiles with what the groups of a piece and each column share. Several columns have a loop over
        vectors of groups of which the piece has some; one has one loop, with a test in front of it, over all
        that a piece may have."""
        size = self.count if len(columns) == 1 else min(LANES, self.count)
        vector, lane = tirx.Var("v", "int32"), tirx.Var("p", "int32")
        group = lane if len(columns) == 1 else vector * size + lane
        stores = (
            Store(tile, (group,), substitute(value, self._place_of(group, column.at)), loc=self.loc)
            for column in columns
            for tile, value in column.steps.values.items()
        )
        filled = self._each((lane,), (size,), *stores)
        if len(columns) == 1:
            return filled
        vectors = tirx.floordiv(self._steps_of_piece() * self.together + (size - 1), int32(size))
        return self._serial(vector, vectors, [filled])

    def _place_of(self, group: Expr, column: Expr) -> dict[Var, Expr]:
        """What stands for a group of a piece, and a column."""
        return {self.groups.group: self.piece * self.count + group, self.product.column: column}

    def _step(self, step: Var, columns: Sequence[Column]) -> Parallel:
        """Adds the products of the groups of a step to sums of each column and row. Columns take turns, a
        number each: activations are loaded once for all, and sums of a column do not wait for themselves."""
        lane = tirx.Var("p", "int32")
        words = [self._words(column, step, lane) for column in columns]
        body: list[Stmt] = [bind for word in words for bind in word.binds]
        sums: dict[tuple[int, int], Expr] = {}
        for part, place in product(self._parts(), self._places()):
            vector = step * len(self._parts()) + part
            for at, word in enumerate(words):
                numbers = self._named(word.numbers[part], place, body)
                for row in range(self.rows):
                    terms = self._terms(numbers, row, vector, place, lane)
                    sums[at, row] = self._sum(sums.get((at, row)), terms, body)
        for at, column in enumerate(columns):
            for row, tile in enumerate(column.own):
                value = self._scaled(sums[at, row], column, row, step, lane)
                body.append(Store(tile, (lane,), value, loc=self.loc))
        return self._each((lane,), (self.lanes,), *body)

    def _words(self, column: Column, step: Var, lane: Var) -> Words:
        """The integers of a step and a column, and what its groups share, by names."""
        names = [tirx.Var(self.groups.integer.name, dtype_of(self.groups.integer)) for _ in self._parts()]
        shared = {name: tirx.Var(name.name, dtype_of(name)) for name in column.steps.shared}
        group = self._group(step, lane)
        binds = [
            Bind(shared[name], load_at(tile, group), loc=self.loc)
            for name, tile in column.steps.shared.items()
        ]
        binds += (
            Bind(name, self._integer(column.at, step, lane, part), loc=self.loc)
            for part, name in enumerate(names)
        )
        numbers = [
            [substitute(each, {self.groups.integer: name} | shared) for each in self.groups.numbers]
            for name in names
        ]
        return Words(binds, numbers)

    def _places(self) -> Sequence[int]:
        """What is multiplied at once: the places of numbers in an integer."""
        return range(self.groups.each)

    def _named(self, numbers: list[Expr], place: int, body: list[Stmt]) -> list[Expr]:
        """The numbers at a place, by names that ``body`` has then: all rows multiply them."""
        name = tirx.Var("number", "float32")
        body.append(Bind(name, numbers[place], loc=self.loc))
        return [name]

    def _terms(
        self, numbers: Sequence[Expr], row: int, vector: Expr, place: int, lane: Expr
    ) -> Sequence[Sequence[Expr]]:
        """The products of the numbers at a place, those that are one instruction together."""
        return [[number * self._held(row, vector, place, lane)] for number in numbers]

    def _sum(self, before: Expr | None, terms: Sequence[Sequence[Expr]], body: list[Stmt]) -> Expr:
        """A name for what is ``before`` and ``terms`` behind it, which ``body`` has then."""
        for together in terms:
            name = tirx.Var("sum", "float32")
            value = reduce(add, together) if before is None else reduce(add, together, before)
            body.append(Bind(name, value, loc=self.loc))
            before = name
        return before

    def _scaled(self, value: Expr, column: Column, row: int, step: Var, lane: Var) -> Expr:
        """The sum of a column and a row with ``value``, the products of a step, times their scale."""
        group, before = self._group(step, lane), load_at(column.own[row], lane)
        offset = column.steps.offset(row)
        if offset is not None:
            added = tirx.BufferLoad(self.sums, [int32(row), step, lane])
            before = added * load_at(offset, group) + before
        return value * load_at(column.steps.scale(row), group) + before

    def _parts(self) -> range:
        """Vectors of lanes of a step."""
        return range(self.width // (self.lanes * self.word))

    def _group(self, step: Expr, lane: Expr) -> Expr:
        """The group of a lane in a step."""
        return step if self.together == 1 else step * self.together + lane * self.word // self.groups.width

    def _integer(self, column: Expr, step: Expr, lane: Expr, part: int) -> Expr:
        """The integer of a lane."""
        at = lane + part * self.lanes
        values = self._place_of(self._group(step, lane), column)
        read = self.groups.read(at if self.together == 1 else at % self.groups.width)
        return simplified(substitute(read, values), sym.Analyzer())

    def _gained(self, row: int, column: Expr, own: Var, lane: Var) -> Store:
        place = (int32(row), column, lane)
        value = tirx.BufferLoad(self.total, list(place)) + load_at(own, lane)
        return Store(self.total, place, value, loc=self.loc)

    def _results(self) -> list[Stmt]:
        """Adds up lanes into the sums of the product."""
        result = new_tile("result", self.rows, self.columns, dtype=self.kind)
        c = self.product.gemm.c.buffer
        place = (tirx.Var("i", "int32"), tirx.Var("j", "int32"))
        there = self.product.sum_at(*place)
        gained = tirx.BufferLoad(c, list(there)) + tirx.BufferLoad(result, list(place))
        added = self._each(place, (self.rows, self.columns), Store(c, there, gained, loc=self.loc))
        return [
            Alloc(result, loc=self.loc),
            Reduce("sum", whole_region(self.total), whole_region(result), 2, True, loc=self.loc),
            *(if_finite_sums(result, added, self.product.loop) if self.product.scaled else [added]),
        ]

    def _cleared(self, tile: Var) -> Fill:
        return Fill(whole_region(tile), tirx.const(0, self.kind), loc=self.loc)

    def _serial(self, var: Var, stop: Expr, body: Sequence[Stmt]) -> For:
        return For("serial", var, int32(0), cast_to(stop, "int32"), int32(1), tuple(body), loc=self.loc)

    def _each(self, loop: tuple[Var, ...], extents: tuple[int, ...], *body: Stmt) -> Parallel:
        return Parallel(loop, extents, body, loc=self.loc)


def over_parts(value: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """``change`` of ``value``, which never falls as it grows: of a minimum that of both, of which bounds are
    known."""
    if isinstance(value, tirx.Min):
        return tirx.min(over_parts(value.a, change), over_parts(value.b, change))
    return change(value)
