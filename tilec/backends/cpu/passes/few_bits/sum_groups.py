"""Products of few rows with weights of few bits add up stored numbers, by rows of weights and by groups.

for ko in pipelined(0, K // 128):
    copy(A[0:+1, ko * 128:+128], As)
    for j, k in parallel(64, 128):
        Ws[j, k] = float16(float32(int32(W[j, ko * 64 + k // 2]) >> k % 2 * 4 & 15) * s[j, ko])
    gemm(As, Ws, acc, trans_b=True)
->
for c in serial(0, K // 4096):
    planes[0, 0:32, 0:8, 0:16] = A[0, c * 4096:+4096], by the place of a number in words of 4 bytes
    for j in serial(0, 64):
        for t in serial(0, 32): own[0:16] = own[0:16] + s[j, c * 32 + t] * (sums of numbers of W times planes)
        total[0, j, 0:16] = total[0, j, 0:16] + own[0:16]
acc[0, 0:64] = acc[0, 0:64] + sums of total

Weights are read once and in order, long pieces of their rows, and no tile holds them. Sums of floats are
rounded elsewhere than the kernel says, those of integers are exact (`group_bytes`). A loop may also scale the
product of each trip on its way to the sums (`group_loops`); it makes the sums that are not finite, too
(`GroupSums`). Bytes are taken as words
where groups, several of them if need be, surely fill vectors (`group_words`). Zero points are taken off sums
where activations are finite (`group_offsets`). A tile of many rows may have few of its tensor, or the last
ones: such a loop stands in a branch. Weights (K, N) of integers along N have sums of their own
(`column_sums`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.passes.few_bits.column_numbers import column_numbers
from tilec.backends.cpu.passes.few_bits.column_sums import FEW_LANES, ColumnProduct, ColumnSums
from tilec.backends.cpu.passes.few_bits.column_sums import most_rows as most_rows_of_columns
from tilec.backends.cpu.passes.few_bits.group_bytes import are_bytes, integers_of_lanes, most_rows
from tilec.backends.cpu.passes.few_bits.group_loops import loop_product
from tilec.backends.cpu.passes.few_bits.group_numbers import group_numbers, is_zero_beyond
from tilec.backends.cpu.passes.few_bits.group_offsets import sums_stmts
from tilec.backends.cpu.passes.few_bits.group_sums import GroupProduct
from tilec.backends.cpu.passes.few_bits.group_tiles import LANES
from tilec.backends.cpu.passes.few_bits.stored_tiles import CONVERTED
from tilec.backends.cpu.products.forms.byte_words import BYTES
from tilec.ir.exprs import cast_to, dtype_of, int_value, linear_in, loads, uses
from tilec.ir.nodes import Alloc, Block, For, If, Kernel, Launch, Pipelined, Stmt, is_global, walk
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.analysis.uses import addressed_in, changed_in, users, with_overlapping, written_in
from tilec.lowering.math.float8 import FLOAT8_TYPES
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, TensorLoad, Var

    from tilec.backends.cpu.passes.few_bits.group_loops import LoopProduct
    from tilec.backends.cpu.passes.few_bits.group_numbers import GroupNumbers
    from tilec.targets import Target

#: Rows of floats that are multiplied together at most; of more, tiles of weights are made. In tiles of
#: fewer, two rows and more are multiplied by plain bytes as they lie, three and more by scaled floats of 8
#: bits (docs/performance/cpu-quantised.md).
_ROWS, _ROWS_OF_BYTES, _ROWS_OF_FLOAT8 = 4, 1, 2
#: How many rows are told apart in tiles of more.
_PARTED = (8, 4, 1)
#: Trips whose groups fill a vector together.
_TOGETHER = (8, 4, 2)


#: Products of few rows, along K or along N.
FewRows = GroupProduct | ColumnProduct


class SumGroups(Pass):
    """In: a loop along K of ``Gemm``, whose weights copies and elementwise loops make of integers that hold
    several, of a table's elements at such numbers, or of bytes, floats of 8 bits among them. Out: sums of
    groups of stored numbers, and no product, where it has few rows; where that is open, a branch between them
    and the loop as it was."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with such loops replaced, and without the tiles that nothing fills then."""
        return rewrite_launches(kernel, lambda launch: _Sums(kernel, launch, target).result())


class _Sums(ScopedRewrite):
    """Rewrites one launch; ``dropped`` are the tiles that nothing uses then."""

    def __init__(self, kernel: Kernel, launch: Launch, target: Target) -> None:
        super().__init__(kernel, launch)
        self.target = target
        self.users = users(launch.body)
        self.unsure = changed_in(launch) | addressed_in(launch.body)
        self.dropped: set[Var] = set()

    def result(self) -> Launch:
        """The launch with its loops replaced."""
        body = self.block(self.launch.body)
        return self.launch_with(rewrite_blocks(body, self._without_tiles))

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """What takes the place of a loop."""
        product = self._found(stmt) if isinstance(stmt, (For, Pipelined)) else None
        if product is None:
            return super().stmt(stmt)
        if product.rows > _few_rows(product, self.target):
            return [self._branch(product)]
        stmts = self._stmts(product)
        if not any(stmt is product.loop for stmt in walk(tuple(stmts))):
            self.dropped.update(product.tiles)
        return stmts

    def _stmts(self, product: FewRows) -> list[Stmt]:
        """What takes the place of a product: along N twice where a tile may end in front of its last column,
        as sums of lanes that may not exist leave registers."""
        stmts = _stmts(product, self.target)
        is_whole = _is_whole(product) if isinstance(product, ColumnProduct) else None
        if is_whole is None or self.facts.prove(is_whole) is True:
            return stmts
        return [If(is_whole, tuple(_stmts(product, self.target)), tuple(stmts), loc=product.loop.loc)]

    def _branch(self, product: FewRows) -> Stmt:
        """The loop of a product of many rows, in front of which one row and few rows are told apart: those
        that some sums are ahead for."""
        branch: Stmt = product.loop
        left = _rows_left(product)
        most = min(_most_rows(product, self.target), product.rows - 1)
        for rows in (rows for rows in _PARTED if rows <= most):
            if left is None or self.facts.prove(left > rows) is True:
                return branch
            sums = self._stmts(replace(product, rows=rows))
            branch = If(left <= rows, tuple(sums), (branch,), loc=branch.loc)
        return branch

    def _found(self, loop: For | Pipelined) -> FewRows | None:
        """The product that a loop is."""
        whole = loop_product(loop)
        if whole is None or not self._is_own(loop, whole.tiles):
            return None
        if not whole.gemm.trans_b:
            columns = _column_product(loop, whole)
            return columns if columns is not None and self._stay(_reads_of_columns(columns)) else None
        multiple = self._multiple(loop)
        found = (_product(loop, whole, multiple, self.target, turned) for turned in (False, True))
        return next((product for product in found if product is not None and self._stays(product)), None)

    def _multiple(self, loop: For | Pipelined) -> int:
        """What the number of trips of a loop is a multiple of, up to the lanes of a vector."""
        trips = loop.stop - loop.start
        known = (
            each for each in _TOGETHER if self.facts.prove(tirx.EQ(tirx.floormod(trips, each), 0)) is True
        )
        return next(known, 1)

    def _without_tiles(self, block: Block) -> list[Stmt]:
        return [stmt for stmt in block if not (isinstance(stmt, Alloc) and stmt.buffer in self.dropped)]

    def _is_own(self, loop: For | Pipelined, tiles: Sequence[Var]) -> bool:
        """Whether nothing but a loop uses tiles."""
        own = set(walk(loop.body))
        return all(user in own for tile in tiles for user in self.users[tile])

    def _stays(self, product: GroupProduct) -> bool:
        """Whether a product reads nothing but tensors that the launch leaves as they are, and tables that
        its loop does."""
        groups = product.groups
        own = [] if product.offset is None else [product.offset]
        values = (product.activation, groups.stored, groups.scale, *groups.shared.values(), *own)
        tensors = [table for table in groups.tables if is_global(table.source)]
        tiles = {table.source for table in groups.tables} - {table.source for table in tensors}
        changed = with_overlapping(written_in(product.loop.body), self.launch)
        return self._stay((*values, *tensors)) and not tiles & changed

    def _stay(self, values: Sequence[Expr]) -> bool:
        """Whether values are of nothing but tensors that the launch leaves as they are."""
        read = [load.source for value in values for load in loads(value)]
        return all(is_global(buffer) and buffer not in self.unsure for buffer in read)


def _stmts(product: FewRows, target: Target) -> list[Stmt]:
    """What takes the place of a product."""
    if isinstance(product, ColumnProduct):
        return ColumnSums(product, target).stmts()
    return sums_stmts(product, target)


def _reads_of_columns(product: ColumnProduct) -> tuple[Expr, ...]:
    """All that a product along N reads."""
    numbers = product.numbers
    return (product.activation, product.weight, numbers.stored, numbers.factor, numbers.offset)


def _column_product(loop: For | Pipelined, whole: LoopProduct) -> ColumnProduct | None:
    """What ``whole`` multiplies, weights (K, N) of several numbers in an integer; None where they are none,
    or activations are not 0 beyond their tensor."""
    row, column, k = (tirx.Var(name, "int32") for name in ("m", "j", "k"))
    gemm, made = whole.gemm, whole.made
    activation, weight = made.value(gemm.a.buffer, (row, k)), made.value(gemm.b.buffer, (k, column))
    if activation is None or weight is None or whole.factor is not None:
        return None
    if dtype_of(weight) not in CONVERTED or dtype_of(activation) not in CONVERTED:
        return None
    extents = (int_value(gemm.b.extent[0]) or 0, int_value(gemm.b.extent[1]) or 0)
    numbers = column_numbers(weight, k, column, extents)
    if numbers is None or not is_zero_beyond(activation):
        return None
    if extents[1] // numbers.wide % FEW_LANES:
        return None
    rows = int_value(gemm.a.extent[0]) or 0
    return ColumnProduct(loop, gemm, row, column, k, activation, weight, numbers, rows, whole.tiles)


def _product(
    loop: For | Pipelined, whole: LoopProduct, multiple: int, target: Target, turned: bool
) -> GroupProduct | None:
    """What ``whole`` multiplies, the weights first where it is ``turned``, in a ``multiple`` of trips; None
    where weights are no numbers in groups that sums take."""
    row, column, k = (tirx.Var(name, "int32") for name in ("m", "j", "k"))
    gemm, made = whole.gemm, whole.made
    first, second = (gemm.b, gemm.a) if turned else (gemm.a, gemm.b)
    activation, weight = made.value(first.buffer, (row, k)), made.value(second.buffer, (column, k))
    if activation is None or weight is None:
        return None
    place = (column, row) if turned else (row, column)
    factor, offset = whole.factor_at(place), whole.offset_at(place)
    weight = weight if factor is None else cast_to(weight, "float32") * factor
    depth = int_value(first.extent[1]) or 0
    groups = group_numbers(weight, loop.var, loop.start, k, depth, multiple)
    if groups is None or not _are_taken(weight, activation, groups, target):
        return None
    if offset is not None and groups.size != depth:
        return None
    together, width = multiple * depth // groups.size, groups.width // integers_of_lanes(activation)
    if width < FEW_LANES and (not width or together % (LANES // width)):
        return None
    left = _left(groups.stored, column)
    if left is None:
        return None
    count = tirx.min(tirx.const(int_value(second.extent[0]) or 0, dtype_of(left)), left)
    rows, tiles, scaled = int_value(first.extent[0]) or 0, whole.tiles, factor is not None
    return GroupProduct(
        loop, gemm, row, column, k, activation, groups, count, rows, tiles, together, turned, offset, scaled
    )


def _are_taken(weight: Expr, activation: Expr, groups: GroupNumbers, target: Target) -> bool:
    """Whether sums take weights: of bytes by bytes, or floats that are 0 beyond their tensor."""
    if dtype_of(activation) in BYTES:
        return are_bytes(activation, groups, target)
    are_floats = dtype_of(weight) in CONVERTED and dtype_of(activation) in CONVERTED
    return are_floats and groups.is_zero_beyond


def _few_rows(product: FewRows, target: Target) -> int:
    """Rows whose tiles have sums alone: of more, other products read what is stored, or tiles are made."""
    if isinstance(product, ColumnProduct):
        return _most_rows(product, target)
    if product.groups.are_plain:
        return _ROWS_OF_BYTES
    is_float8 = dtype_of(product.groups.stored) in FLOAT8_TYPES
    return _ROWS_OF_FLOAT8 if is_float8 else _most_rows(product, target)


def _most_rows(product: FewRows, target: Target) -> int:
    """Rows for which sums of stored numbers are ahead of tiles of weights; along N those whose sums half of
    the registers hold."""
    if isinstance(product, ColumnProduct):
        return most_rows_of_columns(product, target)
    are_integers = dtype_of(product.activation) in BYTES
    return most_rows(product.groups, target) if are_integers else _ROWS


def _rows_left(product: FewRows) -> Expr | None:
    """How many rows of activations there are from the first one of a tile on; None where nothing tells."""
    read = list(loads(product.activation))
    return _left(read[0], product.row) if len(read) == 1 else None


def _is_whole(product: ColumnProduct) -> Expr | None:
    """Whether a row has all integers of a tile; None where nothing tells."""
    left = _left(product.numbers.stored, product.numbers.word)
    return None if left is None else left >= product.words


def _left(load: TensorLoad, moving: Var) -> Expr | None:
    """How many elements a tensor has from that on which ``load`` reads where ``moving`` is 0; None where no
    axis counts them."""
    axes = [axis for axis, index in enumerate(load.indices) if uses(index, (moving,))]
    factors = linear_in(load.indices[axes[0]], [moving]) if len(axes) == 1 else []
    return load.source.shape[axes[0]] - factors[1] if factors and int_value(factors[0]) == 1 else None
