"""Sums of stored numbers that lie several in an integer, in the place of a product (K, N): the statements
that `sum_groups` writes. Numbers along N:

for t in serial(0, K // 128):
    held[0, 0:128] = activations of a trip
    for v in serial(0, 1):
        for k in serial(0, 128):
            own_0[0:16] += (W[t * 128 + k, 0:16] & 15) * held[0, k], own_1[0:16] += ...
        part[0, 0:128:8] = own_0[0:16], part[0, 1:128:8] = own_1[0:16] ...
    total[0, 0:128] += part[0, 0:128] * s[t, 0:128] - zero[t, 0:128] * s[t, 0:128] * sums[0]
acc[0, 0:128] += total[0, 0:128]

Lanes have integers of a row, which one vector reads. Numbers along K all go to the sum of their lane's
column, times activations of their own. What is added to numbers is multiplied by the sum of a trip's
activations. Sums that are not finite are made anew, of weights one by one. Where lanes look nothing up,
numbers stay where they are in their word, and sums are divided by how many times too large that makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.backends.cpu.bit_numbers import has_tables
from tilec.backends.cpu.nodes import AskAhead
from tilec.backends.cpu.passes.few_bits.finite_sums import if_finite_sums
from tilec.backends.cpu.passes.few_bits.group_numbers import simplified
from tilec.backends.cpu.passes.few_bits.group_tiles import LANES, load_at, new_tile
from tilec.backends.cpu.passes.few_bits.group_words import Field, field_of
from tilec.backends.cpu.products.packing import whole_region
from tilec.backends.cpu.products.tir import SECOND
from tilec.ir.exprs import cast_to, dtype_of, int32, int_value, substitute
from tilec.ir.nodes import Alloc, Bind, Fill, For, Gemm, Parallel, Pipelined, Reduce, Store

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.passes.few_bits.column_numbers import ColumnNumbers
    from tilec.ir.nodes import Stmt
    from tilec.targets import Target

#: Rows of integers to the one that is asked for: docs/performance/cpu-quantised.md.
_AHEAD = 128
#: Rows, or vectors of one row, that are multiplied together at most: additions of so many do not wait.
_MOST_SUMS = 8
#: Lanes that vectors of integers have at least.
FEW_LANES = 8


@dataclass(frozen=True, eq=False)
class ColumnProduct:
    """``rows`` of ``gemm`` of ``loop``: ``activation`` is that of ``row`` and ``k``, ``weight`` that of
    ``column`` and ``k``, of whose ``numbers`` it is made. ``tiles`` serve the loop alone."""

    loop: For | Pipelined
    gemm: Gemm
    row: Var
    column: Var
    k: Var
    activation: Expr
    weight: Expr
    numbers: ColumnNumbers
    rows: int
    tiles: tuple[Var, ...]

    @property
    def columns(self) -> int:
        """Columns of the tile."""
        return int_value(self.gemm.c.extent[1]) or 1

    @property
    def words(self) -> int:
        """Integers that a row of the tile has its numbers from."""
        return self.columns // self.numbers.wide

    @property
    def depth(self) -> int:
        """Elements along K of a trip."""
        return int_value(self.gemm.a.extent[1]) or 1


def most_rows(product: ColumnProduct, target: Target) -> int:
    """Rows whose sums half of the registers hold; one at least."""
    of_one = product.numbers.wide * -(-FEW_LANES // target.lanes(32))
    return max(1, min(_MOST_SUMS, target.vector_registers // 2 // of_one))


class ColumnSums:
    """What takes the place of one product."""

    def __init__(self, product: ColumnProduct, target: Target) -> None:
        self.product, self.loc = product, product.gemm.loc
        self.words = product.words
        full = self.words % LANES == 0 and target.lanes(32) >= LANES
        self.lanes = LANES if full else FEW_LANES
        self.rows, self.elements = product.rows, product.depth
        self.fields = [] if has_tables(target) else self._fields()
        self.beside = self._beside(target)
        self.piece = tirx.Var("c", "int32")
        self.held = new_tile("held", product.rows, product.depth)
        self.sums = new_tile("sums", product.rows)
        self.part = new_tile("part", product.rows, product.columns)
        self.total = new_tile("total", product.rows, product.columns)

    def _beside(self, target: Target) -> int:
        """Vectors of integers that are multiplied together, so that more of a row is read at once: as many as
        half of the registers hold sums of."""
        most = max(1, most_rows(self.product, target) // self.rows)
        vectors = self.words // self.lanes
        return next(count for count in range(most, 0, -1) if vectors % count == 0)

    def _fields(self) -> list[Field]:
        """The numbers of a word as fields, none where some are something else, where sums of activations
        could overflow in between, or where all go to one sum."""
        numbers = self.product.numbers
        if numbers.deep:
            return []
        fields = [field_of(number) for number in numbers.numbers]
        known = [field for field in fields if field is not None and field.is_plain]
        near = numbers.has_offset or dtype_of(self.product.activation) == "float16"
        return known if near and len(known) == len(fields) else []

    def stmts(self) -> list[Stmt]:
        """The statements in place of the loop. Sums of numbers that have a factor or an offset, if they are
        not finite, are made of weights one by one."""
        body = (
            *(Alloc(tile, loc=self.loc) for tile in self._tiles()),
            *self._activations(),
            self._vectors(tirx.Var("v", "int32"), int32(self.words // self.lanes // self.beside)),
            self._results(),
        )
        added = self._added()
        is_plain = self.product.numbers.is_plain
        return [
            Alloc(self.total, loc=self.loc),
            Fill(whole_region(self.total), tirx.const(0.0, "float32"), loc=self.loc),
            self._loop(self.piece, self.pieces, body),
            *([added] if is_plain else if_finite_sums(self.total, added, self._one_by_one())),
        ]

    def _tiles(self) -> tuple[Var, ...]:
        """The tiles of a trip."""
        return (
            (self.held, self.part, self.sums) if self.product.numbers.has_offset else (self.held, self.part)
        )

    @property
    def pieces(self) -> Expr:
        """How many trips the loop has, each of which is a piece."""
        return cast_to(self.product.loop.stop - self.product.loop.start, "int32")

    def activation(self, row: int, piece: Expr, at: Expr) -> Expr:
        """Activation ``at`` of ``piece`` and ``row``, a float32."""
        product = self.product
        inside = {product.row: int32(row), product.loop.var: self._trip(piece), product.k: at}
        return cast_to(simplified(substitute(product.activation, inside), sym.Analyzer()), "float32")

    def _trip(self, piece: Expr) -> Expr:
        loop = self.product.loop
        return loop.start + cast_to(piece, dtype_of(loop.var))

    def _activations(self) -> list[Stmt]:
        """Fills ``held`` with those of a trip, ``sums`` with what they come to."""
        product, at = self.product, tirx.Var("i", "int32")
        stores = (
            Store(self.held, (int32(row), at), self.activation(row, self.piece, at), loc=self.loc)
            for row in range(self.rows)
        )
        filled = Parallel((at,), (product.depth,), tuple(stores), loc=self.loc)
        if not product.numbers.has_offset:
            return [filled]
        added = Reduce("sum", whole_region(self.held), whole_region(self.sums), 1, True, loc=self.loc)
        return [filled, added]

    def _vectors(self, several: Var, count: Expr) -> For:
        """The products of some vectors of integers at a time, into ``part``."""
        vectors = [several * self.beside + at for at in range(self.beside)]
        own = [self._own() for _ in vectors]
        tiles, k = [tile for rows in own for row in rows for tile in row], tirx.Var("k", "int32")
        body = (
            *(Alloc(tile, loc=self.loc) for tile in tiles),
            *(Fill(whole_region(tile), tirx.const(0.0, "float32"), loc=self.loc) for tile in tiles),
            self._loop(k, int32(self.elements // self.product.numbers.tall), (self._step(k, vectors, own),)),
            *(self._parted(vector, rows) for vector, rows in zip(vectors, own, strict=True)),
        )
        return self._loop(several, count, body)

    def _own(self) -> list[list[Var]]:
        """Tiles of the sums of a vector, for each row and place."""
        wide = self.product.numbers.wide
        return [[new_tile("own", self.lanes) for _ in range(wide)] for _ in range(self.rows)]

    def _step(self, k: Var, vectors: list[Expr], own: list[list[list[Var]]]) -> Parallel:
        """Adds the products of a row of integers to sums of their own for each row and place."""
        lane = tirx.Var("p", "int32")
        body: list[Stmt] = []
        for vector, rows in zip(vectors, own, strict=True):
            body += self._products(k, vector * self.lanes + lane, rows, lane)
        return Parallel((lane,), (self.lanes,), tuple(body), loc=self.loc)

    def _products(self, k: Var, at: Expr, own: list[list[Var]], lane: Var) -> list[Stmt]:
        """Adds the products of the integers ``at`` of a row, and asks for those of a later one."""
        numbers = self.product.numbers
        read, ahead = self._stored(k, at), self._stored(k + _AHEAD, at)
        name = tirx.Var("word", dtype_of(numbers.integer))
        body: list[Stmt] = [Bind(name, read, loc=self.loc)]
        for place, number in enumerate(numbers.numbers):
            value = tirx.Var("number", "float32")
            body.append(Bind(value, self._number(place, number, name), loc=self.loc))
            for row, tiles in enumerate(own):
                at_k = k * numbers.tall + place if numbers.deep else k
                activation = tirx.BufferLoad(self.held, [int32(row), at_k])
                own_sum = tiles[place % numbers.wide]
                gained = value * activation + load_at(own_sum, lane)
                body.append(Store(own_sum, (lane,), gained, loc=self.loc))
        return [*body, AskAhead(read.source, tuple(read.indices), tuple(ahead.indices), SECOND)]

    def _number(self, place: int, number: Expr, word: Var) -> Expr:
        """A number of ``word``, where it stays in its place as many times too large."""
        if self.fields:
            return self.fields[place].in_place(word)
        return substitute(number, {self.product.numbers.integer: word})

    def _stored(self, k: Expr, word: Expr) -> tirx.BufferLoad:
        """What memory has at ``k`` of the trip and at ``word``."""
        product, numbers = self.product, self.product.numbers
        inside = {product.k: k, numbers.word: word, product.loop.var: self._trip(self.piece)}
        indices = [sym.Analyzer().simplify(substitute(index, inside)) for index in numbers.stored.indices]
        return tirx.BufferLoad(numbers.stored.source, indices)

    def _parted(self, vector: Expr, own: list[list[Var]]) -> Parallel:
        """``part`` = sums in the order of columns."""
        lane, each = tirx.Var("p", "int32"), self.product.numbers.wide
        stores = (
            Store(
                self.part,
                (int32(row), (vector * self.lanes + lane) * each + place),
                self._divided(load_at(tile, lane), place),
                loc=self.loc,
            )
            for row, tiles in enumerate(own)
            for place, tile in enumerate(tiles)
        )
        return Parallel((lane,), (self.lanes,), tuple(stores), loc=self.loc)

    def _divided(self, value: Expr, place: int) -> Expr:
        """A sum of numbers at a place, which are too large where they stayed in their word."""
        times = self.fields[place].times if self.fields else 1
        return value if times == 1 else value * tirx.const(1.0 / times, "float32")

    def _results(self) -> Parallel:
        """Adds what a trip comes to to the sums of all."""
        product, row, column = self.product, tirx.Var("i", "int32"), tirx.Var("j", "int32")
        inside = {product.column: column, product.loop.var: self._trip(self.piece)}
        factor, offset = (
            substitute(each, inside) for each in (product.numbers.factor, product.numbers.offset)
        )
        value = tirx.BufferLoad(self.total, [row, column])
        value = value + tirx.BufferLoad(self.part, [row, column]) * factor
        if product.numbers.has_offset:
            value = value + load_at(self.sums, row) * offset
        return self._each(row, column, Store(self.total, (row, column), value, loc=self.loc))

    def _added(self) -> Parallel:
        """Adds sums of all trips to those of the product."""
        row, column, c = tirx.Var("i", "int32"), tirx.Var("j", "int32"), self.product.gemm.c.buffer
        value = tirx.BufferLoad(c, [row, column]) + tirx.BufferLoad(self.total, [row, column])
        return self._each(row, column, Store(c, (row, column), value, loc=self.loc))

    def _one_by_one(self) -> Parallel:
        """Adds activations times weights, as a tile would have them, to the sums of the product."""
        product, row, column, k = self.product, *(tirx.Var(name, "int32") for name in "ijk")
        trip = self._trip(self.piece)
        inside = {product.row: row, product.column: column, product.k: k, product.loop.var: trip}
        values = (substitute(each, inside) for each in (product.activation, product.weight))
        first, second = (cast_to(simplified(each, sym.Analyzer()), "float32") for each in values)
        c = product.gemm.c.buffer
        store = Store(c, (row, column), tirx.BufferLoad(c, [row, column]) + first * second, loc=self.loc)
        deep = self._loop(k, int32(product.depth), (store,))
        return self._each(row, column, self._loop(self.piece, self.pieces, (deep,)))

    def _each(self, row: Var, column: Var, stmt: Stmt) -> Parallel:
        """``stmt`` for all sums."""
        extents = (self.product.rows, self.product.columns)
        return Parallel((row, column), extents, (stmt,), loc=self.loc)

    def _loop(self, var: Var, count: Expr, body: tuple[Stmt, ...]) -> For:
        return For("serial", var, int32(0), count, int32(1), body, loc=self.loc)
