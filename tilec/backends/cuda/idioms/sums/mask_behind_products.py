"""Masks that stand in a sum before its product are put there behind it.

S = seen ? 0 : -inf;  S += Q K    ->    S = Q K;  S = seen ? S : -inf
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import is_whole, static_extents
from tilec.backends.cuda.idioms.writings import Writing, writings
from tilec.dtypes import FLOAT_FORMATS
from tilec.ir.analysis.aliases import named
from tilec.ir.exprs import choice_of, int_value, uncast
from tilec.ir.nodes import Block, Gemm, Launch, Parallel, Stmt, Store, children, with_children
from tilec.lowering.analysis.conditions import opposite
from tilec.lowering.analysis.uses import touches, written_in
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: A float32 this many times as large as another one stays as it is when that is added to it.
_ABSORBS = 2.0**25


class MaskBehindProducts(LaunchPass):
    """In: loops and branches in which a loop fills a float32 fragment with 0 where a condition holds and with
    -inf elsewhere, or with another number so large that no product of the operands changes it, and as the
    next statement that names it a Gemm that adds to all of it. Out: a Gemm that clears, and the mask behind
    it. Where a product of hidden elements is NaN, or +inf, the mask now wins."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such masks; one whose tensors may overlap as it is."""
        if named(launch) or launch.thread_vars:
            return launch
        body = tuple(
            with_children(stmt, [rewrite_blocks(inner, _moved) for inner in children(stmt)])
            for stmt in launch.body
        )
        return replace(launch, body=body)


def _moved(block: Block) -> Block:
    for place, stmt in enumerate(block):
        for writing in writings(stmt):
            made = _behind(block[place + 1 :], writing, stmt)
            if made is not None:
                return _moved((*block[:place], *writing.rest, *made))
    return block


def _behind(behind: Block, writing: Writing, stmt: Stmt) -> Block | None:
    """The statements behind a writer with its mask behind the product; None where it is no mask."""
    at = next((place for place, each in enumerate(behind) if touches(each, writing.tile)), None)
    if at is None:
        return None
    product = behind[at]
    if not isinstance(product, Gemm) or not _adds(product, writing.tile) or not writing.is_whole:
        return None
    parts = _mask(writing.value)
    if parts is None or writing.sources & written_in(behind[:at]):
        return None
    seen, other = parts
    if not -float(other.value) >= _ABSORBS * _largest(product):
        return None
    variables = tuple(var for var, _, _ in writing.axes if var is not None)
    if len(variables) != len(writing.axes):
        return None
    own = tirx.BufferLoad(writing.tile, list(variables))
    value = tirx.if_then_else(seen, own, other)
    mask = Parallel(
        variables, static_extents(writing.tile), (Store(writing.tile, variables, value, loc=stmt.loc),),
        loc=stmt.loc,
    )  # fmt: skip
    cleared = replace(product, clear=tirx.const(True, "bool"))
    return (*behind[:at], cleared, mask, *behind[at + 1 :])


def _adds(product: Gemm, tile: Var) -> bool:
    """Whether a product adds to all of a float32 fragment and reads it nowhere else."""
    others = (product.a.buffer, product.b.buffer)
    return (
        product.c.buffer.same_as(tile)
        and is_whole(product.c)
        and str(tile.dtype) == "float32"
        and tile.scope() == "local.fragment"
        and int_value(product.clear) == 0
        and not any(tile.same_as(other) for other in others)
    )


def _mask(value: Expr) -> tuple[Expr, tirx.FloatImm] | None:
    """Where a sum starts from 0, and what it starts from elsewhere; None for other values."""
    found = choice_of(value)
    if found is None:
        return None
    cond, first, second = found
    numbers = [_number(first), _number(second)]
    if None in numbers or 0 not in numbers:
        return None
    hides = numbers[1] == 0
    seen = opposite(cond) if hides else cond
    return seen, tirx.const(numbers[0 if hides else 1], "float32")


def _number(value: Expr) -> float | None:
    value = uncast(value)
    known = isinstance(value, (tirx.FloatImm, tirx.IntImm))
    return float(value.value) if known else None


def _largest(product: Gemm) -> float:
    """What no sum of products of finite operands exceeds."""
    depth = static_extents(product.a.buffer)[-2 if product.trans_a else -1]
    sizes = [FLOAT_FORMATS.get(str(region.buffer.dtype)) for region in (product.a, product.b)]
    if None in sizes:
        return float("inf")
    return sizes[0].largest * sizes[1].largest * depth  # type: ignore[union-attr]
