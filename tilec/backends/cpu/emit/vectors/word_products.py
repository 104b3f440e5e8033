"""Sums of products of bfloat16 elements and numbers of a few bits, in vector lanes: both halves of a word
look their numbers up at once (`vpermw`), and one instruction multiplies both (`vdpbf16ps`).

(number(word >> 4) * float32(P[2 * p]) + number(word >> 20) * float32(P[2 * p + 1])) + ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cpu.bit_numbers import COUNT, BitNumber, bit_number, pair_form
from tilec.backends.cpu.emit.vectors.digits import in_first_lane
from tilec.backends.cpu.emit.vectors.pieces import elements_of, places_of
from tilec.backends.cpu.products.forms.dot_forms import dot
from tilec.backends.cpu.products.tir import span
from tilec.ir.exprs import dtype_of, loads, operands, over, summands
from tilec.lowering.emission.neighbours import are_neighbours
from tilec.lowering.math.vectors import lanes_of, literal, spread

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.backends.cpu.products.forms.dot_forms import DotForm

_LANES = 16
_HALF_BITS = 16
_LOOK_UP = "llvm.x86.avx512.permvar.hi.512"


def with_word_products(expr: Expr, ctx: LaneContext) -> Expr:
    """``expr`` with names of vectors in place of such sums."""
    if ctx.width != _LANES or not isinstance(expr, (tirx.Add, tirx.Mul)) or dtype_of(expr) != "float32":
        return expr
    form = pair_form(ctx.target)
    if form is None or not any(dtype_of(load) == "bfloat16" for load in loads(expr)):
        return expr
    found = _products(summands(expr), form, ctx) if isinstance(expr, tirx.Add) else None
    if found is not None:
        name = tirx.Var("products", "float32")
        ctx.env[name] = found
        return name
    parts = operands(expr)
    return over(expr, parts, tuple(with_word_products(part, ctx) for part in parts))


def _products(terms: list[Expr], form: DotForm, ctx: LaneContext) -> Expr | None:
    """The sum of ``terms``, two of which are one product of pairs each, behind one that they are added to
    where their number is odd; None where some are not."""
    *first, terms = [terms[0], terms[1:]] if len(terms) % 2 else [terms]
    pairs = [_pair(terms[at], terms[at + 1], ctx) for at in range(0, len(terms), 2)]
    known = [pair for pair in pairs if pair is not None]
    if not known or len(known) < len(pairs):
        return None
    ctx.functions[f"tilec_{form.name}"] = form.source
    total = ctx.value(first[0]) if first else literal(0.0, "float32", _LANES)
    for number, elements in known:
        total = dot(form, _numbers(number, ctx), elements, total, _LANES)
    return total


def _pair(low: Expr, high: Expr, ctx: LaneContext) -> tuple[BitNumber, Expr] | None:
    """The numbers of both halves of a word, and the pairs of elements that they are multiplied by."""
    first, second = _term(low), _term(high)
    if first is None or second is None or not are_neighbours([first[1], second[1]], ctx):
        return None
    alike = first[0].word.same_as(second[0].word) and first[0].values == second[0].values
    if not alike or first[0].shift + _HALF_BITS != second[0].shift:
        return None
    elements = _pairs(first[1], ctx)
    return None if elements is None else (first[0], elements)


def _term(expr: Expr) -> tuple[BitNumber, TensorLoad] | None:
    """A number and the bfloat16 element that it is multiplied by."""
    if not isinstance(expr, tirx.Mul) or not isinstance(expr.b, tirx.Cast):
        return None
    load, number = expr.b.value, bit_number(expr.a)
    is_element = isinstance(load, TensorLoad) and dtype_of(load) == "bfloat16"
    return (number, load) if is_element and number is not None else None


def _pairs(load: TensorLoad, ctx: LaneContext) -> Expr | None:
    """The pairs of neighbours that begin at ``load``, one after the other in the lanes, as words."""
    storage, indices = ctx.storage(load.source), tuple(load.indices)
    if places_of(storage, indices, ctx) != [2 * lane for lane in range(_LANES)]:
        return None
    first = storage.offset([in_first_lane(index, ctx) for index in indices])
    whole = tirx.BufferLoad(storage.data, [span(first, 2 * _LANES)])
    return tirx.reinterpret(f"int32x{_LANES}", whole)


def _numbers(number: BitNumber, ctx: LaneContext) -> Expr:
    """The numbers of both halves of words, as words."""
    held = ctx.value(number.word)
    word = tirx.reinterpret(f"int32x{_LANES}", spread(held, _LANES) if lanes_of(held) == 1 else held)
    shifted = tirx.shift_right(word, literal(number.shift, "int32", _LANES)) if number.shift else word
    places = list(range(COUNT))
    table = elements_of([tirx.const(value, "uint16") for value in number.values], places, places)
    at = tirx.reinterpret(f"uint16x{COUNT}", shifted)
    found = tirx.call_llvm_pure_intrin(f"uint16x{COUNT}", _LOOK_UP, table, at)
    return tirx.reinterpret(f"int32x{_LANES}", found)
