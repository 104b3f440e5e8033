"""Sums of products of signed bytes that a thread finds side by side: four products at a time by dp4a.

    acc + a[4 * i] * b[4 * i] + ... + a[4 * i + 3] * b[4 * i + 3]  ->  dp4a(a[4 * i : +4], b[4 * i : +4], acc)

T.dp4a is such a sum, as are those that an author writes out (CUDA C++ Programming Guide, "__dp4a").
"""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.accesses.vectors import divides
from tilec.backends.cuda.device.moves import bits
from tilec.backends.cuda.device.packed import DP4A
from tilec.backends.cuda.limits import has_byte_dots
from tilec.ir.exprs import dtype_of, summands
from tilec.lowering.emission.neighbours import are_neighbours

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr

    from tilec.backends.cuda.emit.context import DeviceContext

#: Bytes of a word.
_WORD = 4


def byte_dots(expr: Expr, ctx: DeviceContext) -> Expr | None:
    """The value of a sum of int32 with four terms behind each other that are products of neighbours; None for
    any other."""
    terms = summands(expr) if dtype_of(expr) == "int32" and has_byte_dots(ctx.target) else []
    if sum(isinstance(term, tirx.Mul) for term in terms) < _WORD:
        return None
    words: list[tuple[Expr, Expr]] = []
    others: list[Expr] = []
    while terms:
        word = _words(terms[:_WORD], ctx)
        if word is None:
            others.append(terms.pop(0))
        else:
            words.append(word)
            del terms[:_WORD]
    if not words:
        return None
    values = [ctx.value(other) for other in others] or [tirx.const(0, "int32")]
    total = reduce(partial(ctx.combined, tirx.Add), values)
    for left, right in words:
        total = DP4A.call(left, right, total)
    return total


def _words(terms: Sequence[Expr], ctx: DeviceContext) -> tuple[Expr, Expr] | None:
    """Both operands of four products."""
    if len(terms) < _WORD or not all(isinstance(term, tirx.Mul) for term in terms):
        return None
    left = _word([term.a for term in terms], ctx)
    right = None if left is None else _word([term.b for term in terms], ctx)
    return None if left is None or right is None else (left, right)


def _word(factors: Sequence[Expr], ctx: DeviceContext) -> Expr | None:
    """The word that four bytes make up: elements side by side from a multiple of four on, in memory of a
    thread whose rows are whole words."""
    loads = [factor.value for factor in factors if isinstance(factor, tirx.Cast)]
    if len(loads) < _WORD or not all(isinstance(load, TensorLoad) for load in loads):
        return None
    buffer, first = loads[0].source, loads[0].indices
    if str(buffer.dtype) != "int8" or buffer in ctx.fragments or buffer.scope() == "global":
        return None
    storage = ctx.storage(buffer)
    multiples = (*storage.strides[:-1], first[-1])
    if not all(divides(_WORD, value, ctx.facts) for value in multiples) or not are_neighbours(loads, ctx):
        return None
    return bits(_WORD).call(storage.data.ptr_to([ctx.offset(storage, first)]))
