"""Sums of products of bytes in vector lanes: four products of neighbours, of which every lane has its own,
are one product of words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cpu.emit.vectors.digits import in_first_lane
from tilec.backends.cpu.emit.vectors.pieces import places_of
from tilec.backends.cpu.emit.vectors.windows import WORDS, halves_of_windows
from tilec.backends.cpu.products.forms.byte_words import (
    BYTES,
    Bytes,
    add_products,
    byte_form,
    byte_range,
    in_bytes,
    named,
    names_of,
    ones,
)
from tilec.backends.cpu.products.tir import index, span
from tilec.ir.exprs import dtype_of, loads, same, summands, uses
from tilec.lowering.emission.neighbours import are_neighbours
from tilec.lowering.emission.storage import convert
from tilec.lowering.math.vectors import literal, spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.backends.cpu.products.forms.dot_forms import DotForm

#: Bytes of a word and of half of one, and vectors that give words by one instruction.
_WORD, _HALF, _PAIR = 4, 2, 2
#: Pieces of a vector that are joined by more instructions than two vectors are.
_PIECES = 3
#: What terms are that are not multiplied: bytes, and what is chosen of them, such as absolute values.
_BYTES = (tirx.Cast, tirx.Select)


def byte_products(expr: Expr, ctx: LaneContext, first: Expr | None = None) -> Expr | None:
    """The value of a sum whose terms are products of bytes, four neighbours at a time, and of ``first``; None
    for another sum, and where the target has no instruction for it."""
    form = byte_form(ctx.target, ctx.width) if _may_be(expr, ctx) else None
    if form is None:
        return None
    words, terms = _parted(summands(expr), ctx)
    if not words:
        return None
    others = None
    for term in terms:
        value = spread(ctx.value(term), ctx.width)
        if isinstance(term, TensorLoad):
            first = _sum(first, value)
        else:
            others = _sum(others, value)
    return _added(form, words, first, others, ctx)


def _parted(terms: Sequence[Expr], ctx: LaneContext) -> tuple[list[tuple[Bytes, Bytes]], list[Expr]]:
    """The words of products among the terms of a sum, and the terms that are in none."""
    words: list[tuple[Bytes, Bytes]] = []
    others: list[Expr] = []
    at = 0
    while at < len(terms):
        word = _word(terms[at : at + _WORD], ctx)
        if word is None:
            others.append(terms[at])
            at += 1
            continue
        words.append(word)
        at += _WORD
    return words, others


def _added(
    form: DotForm,
    words: Sequence[tuple[Bytes, Bytes]],
    first: Expr | None,
    others: Expr | None,
    ctx: LaneContext,
) -> Expr | None:
    """The products of ``words`` and what is added to them. Products begin with what memory has (``first``):
    they need not wait for ``others``, which take their time as well."""
    begins, ends = (others, None) if first is None else (first, others)
    total = literal(0, "int32", ctx.width) if begins is None else begins
    for left, right in words:
        made = add_products(form, left, right, total, ctx.width)
        if made is None:
            return None
        total = made
    return _sum(ends, total)


def _sum(total: Expr | None, value: Expr) -> Expr:
    return value if total is None else total + value


def _may_be(expr: Expr, ctx: LaneContext) -> bool:
    """Whether a word of products may be among the terms of a sum."""
    if ctx.lanes is None or ctx.first is not None or dtype_of(expr) != "int32":
        return False
    return sum(isinstance(term, (tirx.Mul, *_BYTES)) for term in summands(expr)) >= _WORD


def _word(terms: Sequence[Expr], ctx: LaneContext) -> tuple[Bytes, Bytes] | None:
    """Both operands of four products of neighbours; of bytes themselves these and ones."""
    if len(terms) < _WORD or not all(isinstance(term, type(terms[0])) for term in terms):
        return None
    if isinstance(terms[0], _BYTES):
        numbers = _bytes(terms, ctx)
        return None if numbers is None else (numbers, ones(ctx.width))
    if not isinstance(terms[0], tirx.Mul):
        return None
    left = _bytes([term.a for term in terms], ctx)
    right = None if left is None else _bytes([term.b for term in terms], ctx)
    return None if left is None or right is None else (left, right)


def _bytes(factors: Sequence[Expr], ctx: LaneContext) -> Bytes | None:
    """The words of factors that do the same with elements side by side, and give bytes."""
    reads = [list(loads(factor)) for factor in factors]
    first = reads[0]
    if not first or not all(str(load.source.dtype) in BYTES for load in first):
        return None
    names = names_of(first)
    forms = [named(factor, names) for factor in factors]
    assert ctx.lanes is not None
    if uses(forms[0], (ctx.lanes.var,)) or not all(same(form, forms[0]) for form in forms):
        return None
    if not all(are_neighbours(column, ctx) for column in zip(*reads, strict=True)):
        return None
    numbers = byte_range(forms[0], ctx.facts.analyzer)
    if numbers is None:
        return None
    words = _words(forms[0], dict(zip(names, first, strict=True)), ctx)
    return None if words is None else Bytes(words, *numbers)


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
        made = spread(convert(ctx.value(in_bytes(form)), "int8"), count)
    return tirx.reinterpret(f"int32x{ctx.width}", made)


def _read(load: TensorLoad, ctx: LaneContext) -> Expr | None:
    """The words of lanes that begin with an element, by as few vectors of equal length as they lie in, or by
    two whole ones."""
    storage = ctx.storage(load.source)
    places = places_of(storage, tuple(load.indices), ctx)
    if places is None:
        return None
    ends = [lane for lane in range(1, ctx.width) if places[lane] - places[lane - 1] != _WORD]
    piece = math.gcd(ctx.width, *ends)
    start = storage.offset([in_first_lane(place, ctx) for place in load.indices])
    joined = None
    if _PIECES * piece <= ctx.width == WORDS:
        joined = halves_of_windows(storage, tuple(load.indices), _WORD // _HALF, _PAIR, ctx)
    if joined is not None:
        return tirx.reinterpret(f"{storage.dtype}x{_WORD * ctx.width}", joined)
    vectors = [
        tirx.BufferLoad(storage.data, [span(start + places[lane], _WORD * piece)])
        for lane in range(0, ctx.width, piece)
    ]
    count = _WORD * ctx.width
    return vectors[0] if len(vectors) == 1 else tirx.Shuffle(vectors, [index(at) for at in range(count)])
