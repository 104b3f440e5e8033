"""Sums of groups of stored numbers in the place of a product: the statements that `sum_groups` writes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.backends.cpu.passes.few_bits.group_numbers import simplified
from tilec.backends.cpu.passes.few_bits.group_words import in_words, with_signs
from tilec.backends.cpu.passes.place_tiles import ASKED
from tilec.backends.cpu.products.packing import whole_region
from tilec.ir.exprs import cast_to, dtype_of, int32, int_value, substitute, uses
from tilec.ir.nodes import Alloc, Bind, Fill, For, Gemm, If, Parallel, Pipelined, Reduce, Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, Var

    from tilec.backends.cpu.passes.few_bits.group_numbers import GroupNumbers
    from tilec.ir.nodes import Stmt

#: Bytes of activations that the first cache holds beside weights: those of all rows together.
_HELD = 16384
#: Lanes that sums of a row of weights have.
LANES = 16


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
    lanes look numbers of few bits up."""

    bytes, word = 4, 1
    held = kind = "float32"

    def __init__(self, product: GroupProduct, tables: bool) -> None:
        self.product, self.tables, self.loc = product, tables, product.gemm.loc
        self.rows, self.columns = product.rows, int_value(product.gemm.c.extent[not product.turned]) or 1
        self.depth = int_value(product.gemm.a.extent[1]) or 1
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

    def _trips(self) -> int:
        """Trips of a piece, whole groups: no more than the loop has."""
        whole, loop = max(1, self.product.groups.size // self.depth), self.product.loop
        held = max(1, _HELD // (self.rows * self.depth * self.bytes * whole)) * whole
        known = int_value(sym.Analyzer().simplify(loop.stop - loop.start))
        return held if known is None else max(1, min(held, known))

    def _form(self) -> tuple[GroupNumbers, int]:
        """The weights by the integers that lanes take, and how many groups fill lanes together."""
        plain = self.product.groups
        words = in_words(plain)
        together = 0 if words is None else self._together(words)
        groups = plain if words is None or not together else words
        signs = self.rows == 1 and not self.tables  # of several rows registers bound, and signs take one more
        return with_signs(groups) if signs else groups, together or self._together(plain) or 1

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
        body = [*self._activations(), self._serial(self.col, self.product.count, self._column())]
        return [
            *(Alloc(tile, place=ASKED, loc=self.loc) for tile in self._kept()),
            Alloc(self.total, loc=self.loc),
            self._cleared(self.total),
            self._serial(self.piece, self.pieces, body),
            *self._results(),
        ]

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

    def _read(self, row: int) -> Parallel:
        """``whole`` = the activations of a piece and a row, as they lie."""
        at = tirx.Var("i", "int32")
        store = Store(self.whole, (at,), self.activation(row, self.piece, at), loc=self.loc)
        return self._each((at,), (self.elements,), store)

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

    def _added(self, row: int) -> Parallel:
        """``sums`` = the activations that a lane multiplies in a step, added up."""
        step, lane, parts = tirx.Var("t", "int32"), tirx.Var("p", "int32"), self._parts()
        terms = (
            self._held(row, step * len(parts) + part, plane, lane)
            for part in parts
            for plane in range(self.groups.each)
        )
        store = Store(self.sums, (int32(row), step, lane), reduce(add, terms), loc=self.loc)
        return self._each((step, lane), (self.count // self.together, self.lanes), store)

    def _held(self, row: int, vector: Expr, plane: int, lane: Expr) -> Expr:
        """The activation that number ``plane`` of a lane is multiplied by."""
        return tirx.BufferLoad(self.planes, [int32(row), vector, int32(plane), lane])

    def _parted(self, row: int) -> Parallel:
        """``planes`` = ``whole`` by the place of a number in its integer, vector by vector of integers."""
        vector, lane, each = tirx.Var("v", "int32"), tirx.Var("p", "int32"), self.groups.each
        integer = vector * self.lanes + lane
        stores = (
            Store(
                self.planes,
                (int32(row), vector, int32(plane), lane),
                self._as_it_lies(integer, plane),
                loc=self.loc,
            )
            for plane in range(each)
        )
        return self._each((vector, lane), (self.vectors, self.lanes), *stores)

    def _column(self) -> list[Stmt]:
        """Adds the groups of a piece and a column to ``total``."""
        step, lane = tirx.Var("t", "int32"), tirx.Var("p", "int32")
        own = [new_tile("own", self.lanes) for _ in range(self.rows)]
        more = [] if self.product.offset is None else [self._added_tile() for _ in own]
        of_steps = OfSteps(self.groups, self.count, self.product.row, self.rows)
        return [
            *(Alloc(tile, loc=self.loc) for tile in (*of_steps.values, *own, *more)),
            self._steps(of_steps.values),
            *(self._offsets(row, tile) for row, tile in enumerate(more)),
            *map(self._cleared, own),
            self._serial(step, self._steps_of_piece(), [self._step(step, of_steps, own)]),
            self._each(
                (lane,), (self.lanes,), *(self._gained(row, tile, lane) for row, tile in enumerate(own))
            ),
            *(self._more(row, tile) for row, tile in enumerate(more)),
        ]

    def _added_tile(self) -> Var:
        """A tile of the offsets of the groups of a piece, as many as whole vectors of lanes have."""
        return new_tile("added", -(-self.count // self.lanes) * self.lanes)

    def _offsets(self, row: int, tile: Var) -> Parallel:
        """Fills a tile with what the groups of a piece add to the sum of a row and a column, then zeros."""
        product, group = self.product, tirx.Var("t", "int32")
        trip = product.loop.start + cast_to(self.piece * self.trips + group, dtype_of(product.loop.var))
        values = {product.row: int32(row), product.column: self.col, product.loop.var: trip}
        left = tirx.min(int32(self.count), self._all_trips() - self.piece * self.trips)
        value = tirx.if_then_else(
            group < left, substitute(product.offset, values), tirx.const(0.0, "float32")
        )
        return self._each((group,), (int(tile.shape[0]),), Store(tile, (group,), value, loc=self.loc))

    def _more(self, row: int, tile: Var) -> Parallel:
        """Adds the offsets of a piece to a sum."""
        lane = tirx.Var("p", "int32")
        place = (int32(row), self.col, lane)
        terms = (load_at(tile, lane + first) for first in range(0, int(tile.shape[0]), self.lanes))
        value = reduce(add, terms, tirx.BufferLoad(self.total, list(place)))
        return self._each((lane,), (self.lanes,), Store(self.total, place, value, loc=self.loc))

    def _steps_of_piece(self) -> Expr:
        """How many steps a piece has: as many as are held, or what is left of them."""
        held, size = self.count // self.together, self.groups.size * self.together
        left = tirx.floordiv(self._all_trips() * self.depth, int32(size)) - self.piece * held
        return tirx.min(int32(held), left)

    def _steps(self, steps: dict[Var, Expr]) -> Parallel:
        """Fills tiles with what the groups of a piece and a column share."""
        group = tirx.Var("t", "int32")
        values = {self.groups.group: self.piece * self.count + group, self.product.column: self.col}
        stores = (
            Store(tile, (group,), substitute(value, values), loc=self.loc) for tile, value in steps.items()
        )
        return self._each((group,), (self.count,), *stores)

    def _step(self, step: Var, steps: OfSteps, own: Sequence[Var]) -> Parallel:
        """Adds the products of the groups of a step to sums of their ``own`` for each row."""
        lane = tirx.Var("p", "int32")
        names = [tirx.Var(self.groups.integer.name, dtype_of(self.groups.integer)) for _ in self._parts()]
        group = self._group(step, lane)
        numbers = [
            [substitute(each, {self.groups.integer: name}) for each in self.groups.numbers] for name in names
        ]
        body: list[Stmt] = [
            Bind(name, load_at(tile, group), loc=self.loc) for name, tile in steps.shared.items()
        ]
        body += (Bind(name, self._integer(step, lane, part), loc=self.loc) for part, name in enumerate(names))
        named, numbers = self._named(numbers)
        body += named
        for row, tile in enumerate(own):
            terms = (
                term
                for part, held in enumerate(numbers)
                for term in self._terms(held, row, step * len(numbers) + part, lane)
            )
            before = load_at(tile, lane)
            offset = steps.offset(row)
            if offset is not None:
                added = tirx.BufferLoad(self.sums, [int32(row), step, lane])
                before = added * load_at(offset, group) + before
            value = reduce(add, terms) * load_at(steps.scale(row), group) + before
            body.append(Store(tile, (lane,), value, loc=self.loc))
        return self._each((lane,), (self.lanes,), *body)

    def _named(self, numbers: list[list[Expr]]) -> tuple[list[Stmt], list[list[Expr]]]:
        """Names for numbers, which all rows multiply."""
        names = [[tirx.Var("number", "float32") for _ in held] for held in numbers]
        pairs = (
            pair for own, held in zip(names, numbers, strict=True) for pair in zip(own, held, strict=True)
        )
        return [Bind(name, value, loc=self.loc) for name, value in pairs], names

    def _terms(self, numbers: Sequence[Expr], row: int, vector: Expr, lane: Expr) -> list[Expr]:
        """The products of the numbers of one integer a lane."""
        return [number * self._held(row, vector, plane, lane) for plane, number in enumerate(numbers)]

    def _parts(self) -> range:
        """Vectors of lanes of a step."""
        return range(self.width // (self.lanes * self.word))

    def _group(self, step: Expr, lane: Expr) -> Expr:
        """The group of a lane in a step."""
        return step if self.together == 1 else step * self.together + lane * self.word // self.groups.width

    def _integer(self, step: Expr, lane: Expr, part: int) -> Expr:
        """The integer of a lane."""
        at = lane + part * self.lanes
        values = {
            self.groups.group: self.piece * self.count + self._group(step, lane),
            self.product.column: self.col,
        }
        read = self.groups.read(at if self.together == 1 else at % self.groups.width)
        return simplified(substitute(read, values), sym.Analyzer())

    def _gained(self, row: int, own: Var, lane: Var) -> Store:
        place = (int32(row), self.col, lane)
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
            *(self._if_finite(result, added) if self.product.scaled else [added]),
        ]

    def _if_finite(self, result: Var, added: Stmt) -> list[Stmt]:
        """``added`` where all of ``result`` is finite, else the loop as it was: an infinite scale makes NaN
        of lanes whose sums are 0, and infinity of the sum of their group."""
        far, found = new_tile("far", 1), new_tile("found", self.rows * self.columns)
        row, column = tirx.Var("i", "int32"), tirx.Var("j", "int32")
        mark = far_mark(tirx.BufferLoad(result, [row, column]), math.inf)
        store = Store(found, (row * self.columns + column,), mark, loc=self.loc)
        return [
            *(Alloc(tile, loc=self.loc) for tile in (far, found)),
            self._each((row, column), (self.rows, self.columns), store),
            Reduce("max", whole_region(found), whole_region(far), 0, True, loc=self.loc),
            If(are_near(far), (added,), (self.product.loop,), loc=self.loc),
        ]

    def _cleared(self, tile: Var) -> Fill:
        return Fill(whole_region(tile), tirx.const(0, self.kind), loc=self.loc)

    def _serial(self, var: Var, stop: Expr, body: Sequence[Stmt]) -> For:
        return For("serial", var, int32(0), cast_to(stop, "int32"), int32(1), tuple(body), loc=self.loc)

    def _each(self, loop: tuple[Var, ...], extents: tuple[int, ...], *body: Stmt) -> Parallel:
        return Parallel(loop, extents, body, loc=self.loc)


class OfSteps:
    """Tiles of what each of ``count`` groups has for itself: its scale and its offset, which may differ from
    one of ``rows`` of activations to the next, and the values of its ``shared`` names. ``values`` are what
    fills them."""

    def __init__(self, groups: GroupNumbers, count: int, row: Var, rows: int) -> None:
        self.count, self.row, self.rows = count, row, rows
        self.values: dict[Var, Expr] = {}
        self._scales = self._by_row("steps", groups.scale)
        self.shared = {name: new_tile(str(name.name), count) for name in groups.shared}
        self.values |= {tile: groups.shared[name] for name, tile in self.shared.items()}
        self._offsets = [] if groups.offset is None else self._by_row("offsets", groups.offset)

    def _by_row(self, name: str, value: Expr) -> list[Var]:
        """Tiles of ``value``: one, or one for each row where rows differ."""
        rows = range(self.rows if uses(value, (self.row,)) else 1)
        tiles = [new_tile(name, self.count) for _ in rows]
        filled = (substitute(value, {self.row: int32(at)}) for at in rows)
        self.values |= zip(tiles, filled, strict=True)
        return tiles

    def scale(self, row: int) -> Var:
        """The tile of scales of a row."""
        return self._scales[row % len(self._scales)]

    def offset(self, row: int) -> Var | None:
        """The tile of offsets of a row; None where groups have none."""
        return self._offsets[row % len(self._offsets)] if self._offsets else None


def new_tile(name: str, *shape: int, dtype: str = "float32") -> Var:
    """A tile of the block."""
    return tirx.decl_buffer(shape, dtype, name, scope="local.fragment")


def load_at(tile: Var, at: Expr) -> Expr:
    """Element ``at`` of a tile of one axis."""
    return tirx.BufferLoad(tile, [at])


def far_mark(value: Expr, bound: float) -> Expr:
    """0 where ``value`` is less than ``bound`` on both sides of 0, else 1, as of NaN; float32."""
    near = tirx.And(value > tirx.const(-bound, "float32"), value < tirx.const(bound, "float32"))
    return tirx.if_then_else(near, tirx.const(0.0, "float32"), tirx.const(1.0, "float32"))


def are_near(far: Var) -> Expr:
    """Whether ``far``, the largest of such marks, says so of none."""
    return tirx.EQ(load_at(far, int32(0)), tirx.const(0.0, "float32"))
