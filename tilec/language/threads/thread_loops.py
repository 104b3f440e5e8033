"""Tile operations on a thread's own storage, as loops of that thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilec.ir import nodes as ir
from tilec.ir.exprs import int_value
from tilec.language.tiles.operations.reductions import combine, identity
from tilec.language.values.operands import stored_value
from tilec.language.values.scalars import dtype
from tilec.language.values.value import Value

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

Indices = tuple["Expr", ...]


def thread_copy(stmt: ir.Copy) -> ir.Block:
    """Element by element, those of extents other than 1 paired up in order."""
    extents = _long(stmt.dst)

    def body(places: Indices) -> ir.Block:
        found = _load(stmt.src.buffer, _at(stmt.src, places))
        return (_store(stmt, stmt.dst.buffer, _at(stmt.dst, places), Value(found)),)

    return _nest(stmt, extents, body)


def thread_fill(stmt: ir.Fill) -> ir.Block:
    """One value in every element."""
    return _nest(
        stmt,
        _long(stmt.dst),
        lambda places: (_store(stmt, stmt.dst.buffer, _at(stmt.dst, places), Value(stmt.value)),),
    )


def thread_reduce(stmt: ir.Reduce) -> ir.Block:
    """For every element of the result a loop along the axis."""
    kept = [extent for axis, extent in enumerate(stmt.src.extent) if axis != stmt.axis]
    to = dtype(str(stmt.dst.buffer.dtype))
    first = identity(stmt.kind, to)

    def body(places: Indices) -> ir.Block:
        target = _at(stmt.dst, _of_result(stmt, places))
        start = (_store(stmt, stmt.dst.buffer, target, first),) if stmt.clear else ()

        def step(along: Indices) -> ir.Block:
            source = (*places[: stmt.axis], *along, *places[stmt.axis :])
            term = Value(stored_value(Value(_load(stmt.src.buffer, _shifted(stmt.src, source))), to))
            old = Value(_load(stmt.dst.buffer, target))
            return (_store(stmt, stmt.dst.buffer, target, combine(stmt.kind, old, term, stmt.nan_propagate)),)

        return (*start, *_nest(stmt, (stmt.src.extent[stmt.axis],), step, "serial"))

    return _nest(stmt, tuple(kept), body, "serial")


def _of_result(stmt: ir.Reduce, places: Indices) -> Indices:
    """Places of the kept axes as places of the result's axes of extents other than 1."""
    kept = [extent for axis, extent in enumerate(stmt.src.extent) if axis != stmt.axis]
    return tuple(place for place, extent in zip(places, kept, strict=True) if int_value(extent) != 1)


def thread_scan(stmt: ir.Scan) -> ir.Block:
    """For every row a loop along the axis, in which each element takes in the one before it."""
    kept = tuple(extent for axis, extent in enumerate(stmt.src.extent) if axis != stmt.axis)
    length = stmt.src.extent[stmt.axis]
    to = dtype(str(stmt.dst.buffer.dtype))

    def body(places: Indices) -> ir.Block:
        def element(along: Expr) -> Indices:
            place = _const(length, along) - 1 - along if stmt.reverse else along
            return (*places[: stmt.axis], place, *places[stmt.axis :])

        def term(along: Expr) -> Value:
            found = _load(stmt.src.buffer, _shifted(stmt.src, element(along)))
            return Value(stored_value(Value(found), to))

        def step(along: Indices) -> ir.Block:
            target = _shifted(stmt.dst, element(along[0] + 1))
            before = Value(_load(stmt.dst.buffer, _shifted(stmt.dst, element(along[0]))))
            value = combine(stmt.kind, before, term(along[0] + 1))
            return (_store(stmt, stmt.dst.buffer, target, value),)

        zero = _const(0, None)
        first = _store(stmt, stmt.dst.buffer, _shifted(stmt.dst, element(zero)), term(zero))
        return (first, *_nest(stmt, (_less_one(length),), step, "serial"))

    return _nest(stmt, kept, body, "serial")


def _less_one(extent: int | Expr) -> int | Expr:
    return extent - 1


def _const(value: int | Expr, like: Expr | None) -> Expr:
    from tvm import tirx

    return (
        tirx.const(value, "int32" if like is None else str(like.ty.dtype))
        if isinstance(value, int)
        else value
    )


def _nest(
    stmt: ir.Stmt,
    extents: tuple[int | Expr, ...],
    body: Callable[[Indices], ir.Block],
    inner: str = "vectorized",
) -> ir.Block:
    """Loops over ``extents`` around what ``body`` makes of their variables; none over extents of 1."""
    from tvm import tirx

    names = iter("ijklmn")
    loops: list[tuple[Var, Expr]] = []
    places: list[Expr] = []
    for extent in extents:
        if int_value(extent) == 1:
            places.append(_const(0, None))
            continue
        stop = _const(extent, None)
        loops.append((tirx.Var(next(names), str(stop.ty.dtype)), stop))
        places.append(loops[-1][0])
    block = body(tuple(places))
    for position, (var, stop) in enumerate(reversed(loops)):
        kind = inner if position == 0 and int_value(stop) is not None else "serial"
        zero, one = tirx.const(0, str(stop.ty.dtype)), tirx.const(1, str(stop.ty.dtype))
        block = (ir.For(kind, var, zero, stop, one, block, loc=stmt.loc),)
    return block


def _long(region: ir.Region) -> tuple[int | Expr, ...]:
    return tuple(extent for extent in region.extent if int_value(extent) != 1)


def _at(region: ir.Region, places: Indices) -> Indices:
    """The element at ``places`` of the axes with extents other than 1."""
    rest = iter(places)
    return tuple(
        start if int_value(extent) == 1 else _sum(start, next(rest))
        for start, extent in zip(region.start, region.extent, strict=True)
    )


def _shifted(region: ir.Region, places: Indices) -> Indices:
    """The element at ``places``, one per axis."""
    return tuple(_sum(start, place) for start, place in zip(region.start, places, strict=True))


def _sum(start: Expr, place: Expr) -> Expr:
    return place if int_value(start) == 0 else start + place


def _load(buffer: Any, indices: Indices) -> Expr:
    from tvm import tirx

    return tirx.BufferLoad(buffer, list(indices))


def _store(stmt: ir.Stmt, buffer: Any, indices: Indices, value: Any) -> ir.Store:
    return ir.Store(buffer, indices, stored_value(value, str(buffer.dtype)), loc=stmt.loc)
