"""Sums of products of bytes in vector lanes: four products of neighbours, of which every lane has its own,
are one product of words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cpu.emit.digits import in_first_lane
from tilec.backends.cpu.emit.pieces import places_of
from tilec.backends.cpu.products.byte_words import Bytes, add_products, byte_form
from tilec.backends.cpu.products.tir import index, span
from tilec.ir.analysis.ranges import bounds, limits
from tilec.ir.exprs import dtype_of, int_value, loads, same, transform, uses
from tilec.lowering.emission.access import open_bounds
from tilec.lowering.emission.storage import convert
from tilec.lowering.math.vectors import literal, spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext

#: Bytes of a word.
_WORD = 4
_BYTES = ("int8", "uint8")


def byte_products(expr: Expr, ctx: LaneContext) -> Expr | None:
    """The value of a sum whose terms are products of bytes, four neighbours at a time; None for another sum,
    and where the target has no instruction for it."""
    form = byte_form(ctx.target, ctx.width) if _may_be(expr, ctx) else None
    if form is None:
        return None
    total, pending = None, list(_terms(expr))
    words: list[tuple[Bytes, Bytes]] = []
    while pending:
        word = _word(pending[:_WORD], ctx)
        if word is not None:
            words.append(word)
            del pending[:_WORD]
            continue
        term = spread(ctx.value(pending.pop(0)), ctx.width)
        total = term if total is None else total + term
    if not words:
        return None
    total = literal(0, "int32", ctx.width) if total is None else total
    for left, right in words:
        total = add_products(form, left, right, total, ctx.width)
        if total is None:
            return None
    return total


def _may_be(expr: Expr, ctx: LaneContext) -> bool:
    """Whether a word of products may be among the terms of a sum."""
    if ctx.lanes is None or ctx.first is not None or dtype_of(expr) != "int32":
        return False
    return sum(isinstance(term, tirx.Mul) for term in _terms(expr)) >= _WORD


def _terms(expr: Expr) -> Iterator[Expr]:
    if not isinstance(expr, tirx.Add):
        yield expr
        return
    yield from _terms(expr.a)
    yield from _terms(expr.b)


def _word(terms: Sequence[Expr], ctx: LaneContext) -> tuple[Bytes, Bytes] | None:
    """Both operands of four products of neighbours."""
    if len(terms) < _WORD or not all(isinstance(term, tirx.Mul) for term in terms):
        return None
    left = _bytes([term.a for term in terms], ctx)
    right = None if left is None else _bytes([term.b for term in terms], ctx)
    return None if left is None or right is None else (left, right)


def _bytes(factors: Sequence[Expr], ctx: LaneContext) -> Bytes | None:
    """The words of factors that do the same with elements side by side, and give bytes."""
    reads = [list(loads(factor)) for factor in factors]
    first = reads[0]
    if not first or not all(str(load.source.dtype) in _BYTES for load in first):
        return None
    names = [tirx.Var("byte", str(load.source.dtype)) for load in first]
    forms = [_renamed(factor, names) for factor in factors]
    assert ctx.lanes is not None
    if uses(forms[0], (ctx.lanes.var,)) or not all(same(form, forms[0]) for form in forms):
        return None
    if not all(_are_words(column, ctx) for column in zip(*reads, strict=True)):
        return None
    low, high = bounds(forms[0], ctx.facts.analyzer)
    if not any(limits(kind)[0] <= low and high <= limits(kind)[1] for kind in _BYTES):
        return None
    words = _words(forms[0], dict(zip(names, first, strict=True)), ctx)
    return None if words is None else Bytes(words, low, high)


def _renamed(factor: Expr, names: Sequence[Expr]) -> Expr:
    """A factor that has names in place of its elements, in their order."""
    left = iter(names)
    return transform(factor, lambda node: next(left, None) if isinstance(node, TensorLoad) else None)


def _are_words(elements: Sequence[TensorLoad], ctx: LaneContext) -> bool:
    """Whether elements are neighbours inside of their buffer, in every lane."""
    first = elements[0]
    storage = ctx.storage(first.source)
    if storage.layout is not None or storage.copies > 1 or int_value(storage.strides[-1]) != 1:
        return False
    return all(
        load.source.same_as(first.source)
        and _distance(first, load, ctx) == number
        and open_bounds(load.source, tuple(load.indices), ctx) == []
        for number, load in enumerate(elements)
    )


def _distance(first: TensorLoad, other: TensorLoad, ctx: LaneContext) -> int | None:
    """How far two elements lie apart in a row; None in different rows."""
    gaps = [int_value(ctx.facts.simplify(b - a)) for a, b in zip(first.indices, other.indices, strict=True)]
    return None if any(gap != 0 for gap in gaps[:-1]) else gaps[-1]


def _words(form: Expr, elements: dict[Expr, TensorLoad], ctx: LaneContext) -> Expr | None:
    """What ``form`` makes of the bytes of words of which each name has the first byte; None where it is not
    known how far the words of lanes lie apart."""
    count = _WORD * ctx.width
    with ctx.scope():
        for name, load in elements.items():
            found = _read(load, ctx)
            if found is None:
                return None
            ctx.env[name] = found
        made = spread(convert(ctx.value(form), "int8"), count)
    return tirx.reinterpret(f"int32x{ctx.width}", made)


def _read(load: TensorLoad, ctx: LaneContext) -> Expr | None:
    """The words of lanes that begin with an element, by as few vectors of equal length as they lie in."""
    storage = ctx.storage(load.source)
    places = places_of(storage, tuple(load.indices), ctx)
    if places is None:
        return None
    ends = [lane for lane in range(1, ctx.width) if places[lane] - places[lane - 1] != _WORD]
    piece = math.gcd(ctx.width, *ends)
    start = storage.offset([in_first_lane(place, ctx) for place in load.indices])
    vectors = [
        tirx.BufferLoad(storage.data, [span(start + places[lane], _WORD * piece)])
        for lane in range(0, ctx.width, piece)
    ]
    count = _WORD * ctx.width
    return vectors[0] if len(vectors) == 1 else tirx.Shuffle(vectors, [index(at) for at in range(count)])
