"""Scales of stored numbers leave tiles that products of few rows read: they go to the sums, and to the rows.

for i, j in parallel(64, 128): Kf[i, j] = float32(Kb[i, j]) * sk[i]
product(Qs, transposed(Kf), s, clear=False)
->
for i, j in parallel(64, 128): Kf[i, j] = float32(Kb[i, j])
product(Qs, transposed(Kf), s_unscaled, clear=True)
for m, n in parallel(4, 64): s[m, n] = s[m, n] + s_unscaled[m, n] * sk[n]

What varies along K is multiplied with the other operand in front of the product. The tile then holds bytes,
which the product reads where they lie (`read_stored`). Sums are rounded elsewhere than the kernel says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.backends.cpu.nodes import Matrix, MicroGemm, element
from tilec.backends.cpu.passes.few_bits.group_numbers import within
from tilec.backends.cpu.passes.few_bits.stored_tiles import (
    CONVERTED,
    StoredTiles,
    conversion,
    of_numbers,
    only_store,
    stored_number,
)
from tilec.backends.cpu.products.packing import whole_region
from tilec.ir.exprs import BINARY, cast_to, dtype_of, int_value, loads, substitute, uses, walk
from tilec.ir.nodes import Alloc, Block, Kernel, Parallel, Stmt, Store
from tilec.lowering.analysis.regions import static
from tilec.lowering.analysis.uses import with_overlapping, written_in
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.ir.nodes import Launch
    from tilec.targets import Target

#: What scales may be made of: values without effects, the same wherever they are computed.
_PLAIN = (Var, TensorLoad, tirx.IntImm, tirx.FloatImm, tirx.Cast, *BINARY)


class MoveScales(Pass):
    """In: ``MicroGemm`` of few rows on a ``b`` of floats that one statement converts from bytes and
    multiplies by scales in float32, each of rows, of columns or of the whole tile. Out: a tile that is
    converted alone, and scales on other tiles."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with such scales moved."""
        return rewrite_launches(kernel, lambda launch: _moved(launch, target))


def _moved(launch: Launch, target: Target) -> Launch:
    return replace(launch, body=rewrite_blocks(launch.body, _Scales(launch, target).block))


@dataclass(frozen=True, eq=False)
class _Scaled:
    """How ``stmt`` would fill ``tile`` without ``scales``, values at its variables."""

    stmt: Parallel
    tile: Var
    scales: tuple[Expr, ...]

    def at(self, scales: Sequence[Expr], matrix: Matrix, row: Expr | None, col: Expr | None) -> Expr:
        """The product of some ``scales`` at (row, column) of ``matrix``, a part of the tile; None where they
        vary along the other axis alone."""
        start = list(matrix.region.start)
        for axis, place in ((matrix.row, row), (matrix.col, col)):
            start[axis] = start[axis] if place is None else start[axis] + place
        values = {var: cast_to(at, dtype_of(var)) for var, at in zip(self.stmt.vars, start, strict=True)}
        return reduce(mul, (substitute(scale, values) for scale in scales))


class _Scales(StoredTiles):
    """Rewrites one launch block by block."""

    def block(self, block: Block) -> list[Stmt]:
        """The block with its tiles unscaled, and the scales beside their products."""
        new: dict[Stmt, list[Stmt]] = {}
        for position, stmt in enumerate(block):
            scaled = _scaled(stmt)
            if scaled is not None and self._may_move(scaled, block[position + 1 :]):
                new |= {gemm: _product(gemm, scaled) for gemm in self._products(scaled)}
                new[stmt] = [scaled.stmt]
        return [part for stmt in block for part in new.get(stmt, [stmt])]

    def _may_move(self, scaled: _Scaled, behind: Block) -> bool:
        """Whether the tile serves products of this block alone, which read its bytes without scales."""
        if not self.serves_few_rows(scaled.tile, computed=conversion(scaled.stmt) is None):
            return False
        products = self._products(scaled)
        if any(gemm not in behind or _places(gemm, scaled) is None for gemm in products):
            return False
        last = max(behind.index(gemm) for gemm in products)
        return not self._changes(behind[: last + 1], scaled)

    def _products(self, scaled: _Scaled) -> list[MicroGemm]:
        return [user for user in self.readers(scaled.tile) if isinstance(user, MicroGemm)]

    def _changes(self, block: Block, scaled: _Scaled) -> bool:
        """Whether a block may write what scales read."""
        read = {load.source for scale in scaled.scales for load in loads(scale)}
        return bool(read & with_overlapping(written_in(block), self.launch))


def _scaled(stmt: Stmt) -> _Scaled | None:
    """A loop that stores one converted and scaled element in each iteration; None for any other."""
    if not isinstance(stmt, Parallel) or (store := only_store(stmt)) is None:
        return None
    extents = dict(zip(stmt.vars, map(int_value, stmt.extents), strict=True))
    for stored, scales in _factors(within(store.value, extents)):
        plain = replace(store, value=cast_to(stored, str(store.buffer.dtype)))
        made = replace(stmt, body=(plain,))
        known = conversion(made) is not None or of_numbers(made) is not None
        if scales and known and all(map(_is_plain, scales)):
            return _Scaled(made, store.buffer, scales)
    return None


def _factors(value: Expr) -> Iterator[tuple[Expr, tuple[Expr, ...]]]:
    """An element or a number that bytes hold, and what it is multiplied by in float32 to be ``value``, but
    for its rounding to the type of a tile: every one that ``value`` is so made of."""
    if isinstance(value, TensorLoad) or stored_number(value) is not None:
        yield value, ()
    elif isinstance(value, tirx.Cast) and dtype_of(value) in CONVERTED:
        yield from _factors(value.value)
    elif isinstance(value, tirx.Mul) and dtype_of(value) == "float32":
        for side, other in ((value.a, value.b), (value.b, value.a)):
            yield from ((stored, (*scales, other)) for stored, scales in _factors(side))


def _is_plain(scale: Expr) -> bool:
    return all(isinstance(node, _PLAIN) for node in walk(scale))


def _places(gemm: MicroGemm, scaled: _Scaled) -> tuple[list[Expr], list[Expr]] | None:
    """The scales that belong on the rows of ``a``, and those for sums; one of the whole tile is where there
    are fewer elements. None where one varies along both, or sums are no plain float32."""
    if str(gemm.c.buffer.dtype) != "float32" or int_value(gemm.clear) is None:
        return None
    along_k, along_columns = (scaled.stmt.vars[axis] for axis in (gemm.b.row, gemm.b.col))
    shallow = static(gemm.depth) <= static(gemm.columns)
    rows: list[Expr] = []
    sums: list[Expr] = []
    for scale in scaled.scales:
        on_rows, on_sums = uses(scale, (along_k,)), uses(scale, (along_columns,))
        if on_rows and on_sums:
            return None
        (rows if on_rows or (shallow and not on_sums) else sums).append(scale)
    return rows, sums


def _product(gemm: MicroGemm, scaled: _Scaled) -> list[Stmt]:
    """``gemm`` on the unscaled tile."""
    places = _places(gemm, scaled)
    rows, sums = ([], []) if places is None else places
    before, gemm = _with_rows(gemm, scaled, rows) if rows else ([], gemm)
    return [*before, *(_with_sums(gemm, scaled, sums) if sums else [gemm])]


def _with_rows(gemm: MicroGemm, scaled: _Scaled, scales: list[Expr]) -> tuple[list[Stmt], MicroGemm]:
    """What scales ``a`` along K in a tile of its own, and ``gemm`` on that."""
    extent = (static(gemm.rows), static(gemm.depth))
    tile, (row, k) = _tile(gemm.a.region.buffer, extent, "scaled"), _variables("m", "k")
    old = tirx.BufferLoad(gemm.a.region.buffer, list(element(gemm.a, row, k)))
    value = cast_to(old, "float32") * scaled.at(scales, gemm.b, k, None)
    store = Store(tile, (row, k), value, loc=gemm.loc)
    made = Matrix(whole_region(tile), 0, 1)
    loop = Parallel((row, k), extent, (store,), loc=gemm.loc)
    return [Alloc(tile, loc=gemm.loc), loop], replace(gemm, a=made)


def _with_sums(gemm: MicroGemm, scaled: _Scaled, scales: list[Expr]) -> list[Stmt]:
    """``gemm`` into a tile of its own, and what adds that to its sums, scaled."""
    extent = (static(gemm.rows), static(gemm.columns))
    tile, (row, col) = _tile(gemm.c.buffer, extent, "unscaled"), _variables("m", "n")
    *leading, first_row, first_col = gemm.c.start
    place = (*leading, first_row + row, first_col + col)
    value = tirx.BufferLoad(tile, [row, col]) * scaled.at(scales, gemm.b, None, col)
    if int_value(gemm.clear) == 0:
        value = tirx.BufferLoad(gemm.c.buffer, list(place)) + value
    store = Store(gemm.c.buffer, place, value, loc=gemm.loc)
    product = replace(gemm, c=whole_region(tile), clear=tirx.const(True, "bool"))
    return [Alloc(tile, loc=gemm.loc), product, Parallel((row, col), extent, (store,), loc=gemm.loc)]


def _tile(beside: Var, extent: tuple[int, int], what: str) -> Var:
    """A tile of float32 for what is made of ``beside``."""
    return tirx.decl_buffer(extent, "float32", f"{beside.name}_{what}", scope="local.fragment")


def _variables(*names: str) -> tuple[Var, ...]:
    return tuple(tirx.Var(name, "int32") for name in names)
