"""Sums of products of bytes, and of bytes, along the lanes' axis, four neighbours a lane.

for k in parallel(n): s[0] = s[0] + cast(int32, A[i, k]) * cast(int32, B[j, k])
->
for k in parallel(n // 64 * 16): s[0] = s[0] + (the four products of A[i, 4 * k + b] and B[j, 4 * k + b])
for k in parallel(n % 64): those of the bytes that are left

Words of four bytes are what instructions multiply and add up at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.backends.cpu.products.forms.byte_words import (
    BYTES,
    are_multiplied,
    byte_form,
    byte_range,
    named,
    names_of,
)
from tilec.ir.analysis.numbers.long_names import LongNames
from tilec.ir.exprs import (
    as_expr,
    as_extent,
    dtype_of,
    inlined,
    int_value,
    linear_in,
    loads,
    substitute,
    uses,
)
from tilec.ir.nodes import Bind, Block, Parallel, Stmt, Store
from tilec.lowering.analysis.accumulations import find_accumulations
from tilec.lowering.passes.base import Pass, rewrite_launch_blocks
from tilec.lowering.rewrite import map_block

if TYPE_CHECKING:
    from tvm.ir import Expr, TensorLoad, Var

    from tilec.backends.cpu.products.forms.dot_forms import DotForm
    from tilec.ir.nodes import Kernel
    from tilec.lowering.analysis.accumulations import Accumulation
    from tilec.targets import Target

#: Bytes of a word.
_WORD = 4


class WordsOfBytes(Pass):
    """In: Parallel loops. Out: those that do nothing but add up bytes, or products of them, that lie side by
    side along their last axis have the words of full vectors first, then the bytes that are left."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with such loops parted, where the target multiplies words."""
        lanes = target.vector_bits // 32
        form = byte_form(target, lanes)
        if form is None:
            return kernel
        return rewrite_launch_blocks(kernel, partial(_in_block, lanes=lanes, form=form))


def _in_block(block: Block, lanes: int, form: DotForm) -> list[Stmt]:
    return [
        made
        for stmt in block
        for made in (_parted(stmt, lanes, form) if isinstance(stmt, Parallel) else [stmt])
    ]


def _parted(loop: Parallel, lanes: int, form: DotForm) -> Sequence[Stmt]:
    extent = loop.extents[-1]
    known, part = int_value(extent), lanes * _WORD
    found = None if loop.hints.given or (known is not None and known < part) else _sums(loop, form)
    if found is None:
        return [loop]
    var, dtype = loop.vars[-1], dtype_of(loop.vars[-1])
    end = as_expr(extent, dtype)
    vectors = sym.Analyzer().simplify(tirx.floordiv(end, tirx.const(part, dtype)))
    done = vectors * tirx.const(part, dtype)
    left = sym.Analyzer().simplify(end - done)
    words = _of_words(loop, found, vectors * tirx.const(lanes, dtype))
    if int_value(left) == 0:
        return [words]
    rest = map_block(loop.body, lambda value: substitute(value, {var: done + var}))
    return [words, replace(loop, extents=(*loop.extents[:-1], as_extent(left)), body=rest)]


def _of_words(loop: Parallel, found: Sequence[Accumulation], words: Expr) -> Parallel:
    """The loop over so many words, of which a trip adds the products of four bytes."""
    var, dtype = loop.vars[-1], dtype_of(loop.vars[-1])
    word = tirx.Var(str(var.name), dtype)
    places = [word * tirx.const(_WORD, dtype) + tirx.const(number, dtype) for number in range(_WORD)]
    body = []
    for item in found:
        value = item.store.value
        old = value.b if value.a.same_as(item.term) else value.a
        products = reduce(tirx.Add, (substitute(item.term, {var: place}) for place in places))
        body.append(replace(item.store, value=tirx.Add(old, products)))
    return replace(
        loop, vars=(*loop.vars[:-1], word), extents=(*loop.extents[:-1], as_extent(words)), body=tuple(body)
    )


def _sums(loop: Parallel, form: DotForm) -> list[Accumulation] | None:
    """The sums of products of bytes that a loop is, names written out; None where it is anything else."""
    names: dict[Var, Expr] = {}
    stores: list[Stmt] = []
    long = LongNames()
    for stmt in loop.body:
        if isinstance(stmt, Store):
            stores.append(replace(stmt, value=inlined(stmt.value, names)))
        elif isinstance(stmt, Bind) and not long.has(stmt.var, stmt.value):
            names[stmt.var] = stmt.value
        else:
            return None
    found = find_accumulations(tuple(stores), loop.vars[-1])
    if not found or len(found) < len(stores):
        return None
    return (
        found if all(item.kind == "sum" and _is_of_bytes(item.term, loop, form) for item in found) else None
    )


def _is_of_bytes(term: Expr, loop: Parallel, form: DotForm) -> bool:
    """Whether a term is the product of two bytes that words may have, or a byte itself."""
    if dtype_of(term) != "int32":
        return False
    if isinstance(term, (tirx.Cast, tirx.Select)):
        return _range(term, loop) is not None
    if not isinstance(term, tirx.Mul):
        return False
    left, right = _range(term.a, loop), _range(term.b, loop)
    return left is not None and right is not None and are_multiplied(form, left, right)


def _range(factor: Expr, loop: Parallel) -> tuple[int, int] | None:
    """What a factor may be, made of bytes that lie side by side along the lanes' axis; None where it is made
    of others, or more than a byte."""
    read = list(loads(factor))
    if not read or not all(_is_along(load, loop.vars[-1]) for load in read):
        return None
    form = named(factor, names_of(read))
    return None if uses(form, loop.vars[-1:]) else byte_range(form, sym.Analyzer())


def _is_along(load: TensorLoad, var: Var) -> bool:
    """Whether trips read neighbours of a buffer of bytes."""
    *others, last = load.indices
    linear = linear_in(last, [var])
    steps = bool(linear) and int_value(linear[0]) == 1
    return str(load.source.dtype) in BYTES and steps and not any(uses(index, (var,)) for index in others)
