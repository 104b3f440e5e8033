"""Loops that fill a tile in some order of its elements, over the axes of the tile instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import TensorLoad

from tilec.ir.exprs import all_of, as_expr, dtype_of, int_value, linear_in, substitute, transform, walk
from tilec.ir.nodes import Bind, If, Parallel, Store
from tilec.lowering.analysis.counted import counted

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Names of the axes of a tile.
_NAMES = "ijkl"


def over_axes(
    store: Store,
    variables: Sequence[Var],
    extents: Sequence[int],
    conds: Sequence[Expr] = (),
    tile: TensorLoad | None = None,
    names: Mapping[Var, Expr] | None = None,
) -> Parallel | None:
    """The loop over the axes of a tile of constant shape that does what ``store`` does on ``conds`` for all
    values of ``variables``, from 0 to their ``extents``; None where these do not count the elements of the
    tile through, each once. ``tile``: an element of the tile that is stored elsewhere; else it is the one
    that is stored to. Where more are counted than there are, a condition has to say so. ``names`` are those
    that the value uses, with what they stand for."""
    buffer, indices = (store.buffer, store.indices) if tile is None else (tile.source, tuple(tile.indices))
    shape = [int_value(size) or 0 for size in buffer.shape]
    exprs = (*indices, *store.indices, store.value, *conds, *(names or {}).values())
    if not prod(shape) or len(shape) > len(_NAMES) or any(map(divides_by_zero, exprs)):
        return None
    place = counted(variables, extents).simplify(place_of(indices, shape))
    factors = digits_of(place, variables, extents)
    inside = [cond for cond in conds if _is_bound(cond, place, prod(shape))]
    over = prod(extents) - prod(shape)
    if factors is None or over < 0 or (over > 0 and not inside):
        return None
    dtype = dtype_of(variables[0])
    axes = tuple(tirx.Var(name, dtype) for name in _NAMES[: len(shape)])
    analyzer = counted(axes, shape)
    flat = place_of(axes, shape)
    values = {
        var: _digit(flat, factor, extent)
        for var, factor, extent in zip(variables, factors, extents, strict=True)
    }

    def at_axes(expr: Expr) -> Expr:
        return simpler(substitute(expr, values), analyzer)

    at = axes if tile is None else tuple(analyzer.simplify(at_axes(index)) for index in store.indices)
    binds = (Bind(name, at_axes(value), loc=store.loc) for name, value in (names or {}).items())
    made = (*binds, replace(store, indices=at, value=at_axes(store.value)))
    left = [at_axes(cond) for cond in conds if cond not in inside]
    body = (If(all_of(left), made, loc=store.loc),) if left else made
    return Parallel(axes, tuple(tirx.const(size, dtype) for size in shape), body, loc=store.loc)


def digits_of(place: Expr, variables: Sequence[Var], extents: Sequence[int]) -> list[int] | None:
    """How far each of the variables moves a place; None where they are no digits of it."""
    factors = [int_value(factor) for factor in linear_in(place, variables)]
    if not factors or None in factors or factors[-1] != 0:
        return None
    size = 1
    for factor, extent in sorted(zip(factors, extents, strict=False)):
        if extent != 1 and factor != size:
            return None
        size *= extent
    return factors[:-1]  # type: ignore[return-value]


def _is_bound(cond: Expr, place: Expr, size: int) -> bool:
    """Whether a condition says that a place is one of so many."""
    if not isinstance(cond, tirx.LT):
        return False
    return int_value(sym.Analyzer().simplify(cond.a - cond.b - place + size)) == 0


def _digit(place: Expr, factor: int, extent: int) -> Expr:
    """The digit of a place that counts so many elements."""
    dtype = dtype_of(place)
    if extent == 1:
        return tirx.const(0, dtype)
    return place // tirx.const(factor, dtype) % tirx.const(extent, dtype)


def divides_by_zero(expr: Expr) -> bool:
    """Whether a quotient or a remainder is by the number 0, which no analysis takes."""
    parts = (node for node in walk(expr) if isinstance(node, (tirx.FloorDiv, tirx.FloorMod)))
    return any(int_value(part.b) == 0 for part in parts)


def place_of(indices: Sequence[Expr], shape: Sequence[Expr | int]) -> Expr:
    """The place of an element of a tile or a tensor, row by row."""
    place: Expr = tirx.const(0, dtype_of(indices[0]) if indices else "int32")
    for index, size in zip(indices, shape, strict=True):
        place = place * as_expr(size, dtype_of(index)) + index
    return place


def simpler(expr: Expr, analyzer: sym.Analyzer) -> Expr:
    """An expression with simpler places, quotients and remainders; what it computes of elements stays."""

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, TensorLoad):
            indices = [analyzer.simplify(simpler(index, analyzer)) for index in node.indices]
            return tirx.BufferLoad(node.source, indices)
        return analyzer.simplify(node) if isinstance(node, (tirx.FloorDiv, tirx.FloorMod)) else None

    return transform(expr, visit)
