"""Loops along K that fill tiles and multiply them: what their product is added to, and by what factor.

for ko in pipelined(0, K // 128):                        for ko in pipelined(0, K // 128):
    ... fills As and Ws ...                                  ... fills As and Ws ...
    gemm(As, Ws, acc, trans_b=True)                          gemm(As, Ws, part, trans_b=True, clear=True)
                                                             for i, j in parallel(1, 64):
                                                                 acc[i, j] += float32(part[i, j]) * s[j, ko]
factor 1                                                 factor s[j, ko]

On the left the product of each trip is added as it is, on the right it is scaled on its way to the sums. What
else a trip adds, such as the minimum of a group times a sum of activations, is its offset.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.backends.cpu.passes.few_bits.tile_values import TileValues
from tilec.backends.cpu.products.packing import whole_region
from tilec.ir.exprs import cast_to, dtype_of, inlined, int_value, is_zero, reads, same_all, substitute
from tilec.ir.nodes import Alloc, Bind, Fill, For, Gemm, Parallel, Pipelined, Store
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.regions import is_whole
from tilec.lowering.analysis.whole_stores import stores_each

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr

    from tilec.ir.nodes import Stmt

#: Types of sums.
_SUMS = ("float32", "int32")
#: Axes of a matrix.
_AXES = 2


@dataclass(frozen=True, eq=False)
class LoopProduct:
    """``gemm`` adds the product of tiles that are ``made`` to its ``c``, an element at ``places`` times
    ``factor`` and plus ``offset``, float32 numbers; None is 1 or 0. ``tiles`` are all that such a loop fills
    or multiplies for itself."""

    gemm: Gemm
    made: TileValues
    tiles: tuple[Var, ...]
    places: tuple[Expr, ...] = ()
    factor: Expr | None = None
    offset: Expr | None = None

    def factor_at(self, indices: Sequence[Expr]) -> Expr | None:
        """The factor of element ``indices`` of ``c``."""
        return None if self.factor is None else self._at(self.factor, indices)

    def offset_at(self, indices: Sequence[Expr]) -> Expr | None:
        """The offset of element ``indices`` of ``c``."""
        return None if self.offset is None else self._at(self.offset, indices)

    def _at(self, value: Expr, indices: Sequence[Expr]) -> Expr:
        pairs = zip(self.places, indices, strict=True)
        found = {place: cast_to(at, dtype_of(place)) for place, at in pairs if isinstance(place, Var)}
        return substitute(value, found)


def loop_product(loop: For | Pipelined) -> LoopProduct | None:
    """The product of a loop in steps of one; None where it has none or several, or does anything else."""
    gemm = _only_product(loop)
    if gemm is None:
        return None
    at = loop.body.index(gemm)
    if int_value(gemm.clear) == 0 and at == len(loop.body) - 1:
        made = _made(loop.body[:at])
        return None if made is None else LoopProduct(gemm, made, tuple(made.tiles))
    return _scaled_product(loop, gemm, at)


def _only_product(loop: For | Pipelined) -> Gemm | None:
    """The product of whole matrices of a loop, the first one by its rows, whose sums are float32 or int32."""
    gemms = [stmt for stmt in loop.body if isinstance(stmt, Gemm)]
    if len(gemms) != 1 or (isinstance(loop, For) and int_value(loop.step) != 1):
        return None
    gemm = gemms[0]
    regions = (gemm.a, gemm.b, gemm.c)
    if not all(is_whole(region) and len(region.extent) == _AXES for region in regions):
        return None
    return gemm if not gemm.trans_a and str(gemm.c.buffer.dtype) in _SUMS else None


def _made(stmts: Sequence[Stmt]) -> TileValues | None:
    """The tiles of statements, if these do nothing but fill them."""
    made = TileValues(tuple(stmts))
    fills = [stmt for stmt in stmts if not isinstance(stmt, (Alloc, Bind))]
    return made if len(made.tiles) == len(fills) else None


def _scaled_product(loop: For | Pipelined, gemm: Gemm, at: int) -> LoopProduct | None:
    """The product of a loop that adds it, scaled, to sums at its end: of nothing but this trip's operands."""
    part, (*before, last) = gemm.c.buffer, loop.body
    clears = [stmt for stmt in before[:at] if _clears(stmt, part)]
    if last is gemm or not (clears or int_value(gemm.clear) == 1):
        return None
    rest = [stmt for stmt in before if stmt is not gemm and not _clears(stmt, part)]
    made = _made(rest)
    added = None if made is None else _added(last, made, values_of(rest))
    if made is None or added is None:
        return None
    store, value = added
    found = _linear(value, part, tuple(store.indices))
    if found is None:
        return None
    sums = replace(gemm, c=whole_region(store.buffer), clear=tirx.const(0, dtype_of(gemm.clear)))
    return LoopProduct(sums, made, (*made.tiles, part), tuple(store.indices), *found)


def _clears(stmt: Stmt, part: Var) -> bool:
    """Whether ``stmt`` makes all of ``part`` 0."""
    if not isinstance(stmt, Fill) or not stmt.dst.buffer.same_as(part):
        return False
    return is_whole(stmt.dst) and is_zero(stmt.value)


def _added(stmt: Stmt, made: TileValues, names: dict[Var, Expr]) -> tuple[Store, Expr] | None:
    """The store of a loop that adds a value to each element of a float32 tile, and the value."""
    if not isinstance(stmt, Parallel) or not stmt.body:
        return None
    *own, store = stmt.body
    if not isinstance(store, Store) or not all(isinstance(name, Bind) for name in own):
        return None
    value = made.read(inlined(store.value, names | values_of(own)))
    if dtype_of(value) != "float32" or not stores_each(store, stmt):
        return None
    added = _without(value, store.buffer, tuple(store.indices))
    return None if added is None or reads(added, (store.buffer,)) else (store, added)


def _without(value: Expr, buffer: Var, places: tuple[Expr, ...]) -> Expr | None:
    """What a sum adds to the element of ``buffer`` at ``places``; None where it does not begin with it."""
    if not isinstance(value, (tirx.Add, tirx.Sub)):
        return None
    if _is_at(value.a, buffer, places):
        return value.b if isinstance(value, tirx.Add) else _negative(value.b)
    if isinstance(value, tirx.Add) and _is_at(value.b, buffer, places):
        return value.a
    inner = _without(value.a, buffer, places)
    return None if inner is None else type(value)(inner, value.b)


def _linear(value: Expr, part: Var, places: tuple[Expr, ...]) -> tuple[Expr, Expr | None] | None:
    """What the element of ``part`` at ``places`` is multiplied with to be ``value``, and what is added to it,
    in float32; None where it is something else."""
    if _is_at(value, part, places):
        return tirx.const(1.0, "float32"), None
    if isinstance(value, tirx.Cast) and dtype_of(value) == "float32":
        return _linear(value.value, part, places)
    combined = (tirx.Mul, tirx.Add, tirx.Sub) if dtype_of(value) == "float32" else (tirx.Add, tirx.Sub)
    if not isinstance(value, combined) or dtype_of(value) not in _SUMS:
        return None
    first = reads(value.a, (part,))
    if first == reads(value.b, (part,)):
        return None
    inner, other = _linear(value.a if first else value.b, part, places), value.b if first else value.a
    if inner is None:
        return None
    factor, offset = inner
    other = cast_to(other, "float32")
    if isinstance(value, tirx.Mul):
        return factor * other, None if offset is None else offset * other
    if isinstance(value, tirx.Sub) and not first:
        return _negative(factor), other if offset is None else other - offset
    other = _negative(other) if isinstance(value, tirx.Sub) else other
    return factor, other if offset is None else offset + other


def _negative(value: Expr) -> Expr:
    return value * tirx.const(-1, dtype_of(value))


def _is_at(value: Expr, buffer: Var, places: tuple[Expr, ...]) -> bool:
    """Whether ``value`` is the element of ``buffer`` at ``places``."""
    if not isinstance(value, TensorLoad) or not value.source.same_as(buffer):
        return False
    return same_all(tuple(value.indices), places)
