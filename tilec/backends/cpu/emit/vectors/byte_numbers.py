"""Numbers of a few bits that lanes take out of bytes, each at a place of its own: `byte >> k % 2 * 4 & 15`.

No instruction shifts bytes, let alone by a distance for each lane: bytes would become words and bytes again.
Shifted by each distance that lanes have, as words of which a mask keeps what is the byte's own, lanes choose
among the results.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.vectors.digits import distances
from tilec.ir.exprs import dtype_of, int_value, substitute
from tilec.lowering.emission.storage import convert
from tilec.lowering.math.vectors import lanes_of, literal, reinterpreted

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext

_BITS = 8
_BYTES = ("int8", "uint8")


def byte_numbers(expr: tirx.BitwiseAnd, ctx: LaneContext) -> Expr | None:
    """The lanes of a number of a byte's bits, as many of them as a vector has bytes; None where all lanes
    take the same bits, or these are not known to be the byte's."""
    mask, moved = int_value(expr.b), expr.a
    fills = ctx.width * _BITS == ctx.target.vector_bits
    if not fills or mask is None or not isinstance(moved, tirx.RShift):
        return None
    byte, places = _byte(moved.a), _places(moved.b, ctx)
    if byte is None or places is None or min(places) == max(places):
        return None
    if min(places) < 0 or mask < 0 or max(places) + mask.bit_length() > _BITS:
        return None
    value = ctx.value(byte)
    if lanes_of(value) == 1:
        return None
    return convert(_chosen(value, places) & literal(mask, "uint8", ctx.width), dtype_of(expr))


def _byte(expr: Expr) -> Expr | None:
    """The byte that an integer is made of by casts; None where it is no byte."""
    while isinstance(expr, tirx.Cast) and dtype_of(expr) not in _BYTES:
        expr = expr.value
    return expr if dtype_of(expr) in _BYTES else None


def _places(shift: Expr, ctx: LaneContext) -> list[int] | None:
    """By how many bits each lane shifts; None where that is not known at build time."""
    steps, lanes = distances(shift, ctx), ctx.lanes
    if steps is None or lanes is None:
        return None
    there = substitute(ctx.facts.inline(shift), {lanes.var: lanes.base})
    first = int_value(ctx.facts.analyzer.simplify(there))
    return None if first is None else [first + step for step in steps]


def _chosen(value: Expr, places: list[int]) -> Expr:
    """Each lane of bytes moved down to its place, with bits of its neighbour above its own."""
    count, (least, *others) = len(places), sorted(set(places))
    numbers = tirx.Shuffle([tirx.const(place, "int8") for place in places], list(range(count)))
    words = reinterpreted(f"uint16x{count // 2}", value)

    def moved(place: int) -> Expr:
        return reinterpreted(f"uint8x{count}", words >> literal(place, "uint16", count // 2))

    def chosen(before: Expr, place: int) -> Expr:
        return tirx.Select(tirx.EQ(numbers, literal(place, "int8", count)), moved(place), before)

    return reduce(chosen, others, moved(least))
