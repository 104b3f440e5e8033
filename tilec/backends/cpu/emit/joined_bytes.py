"""16-bit numbers that lanes make of two bytes each, as files have them at any distance: scales of blocks, for
instance. Read one by one, numbers are put into a vector by an instruction each, all of one port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cpu.emit.digits import in_first_lane
from tilec.backends.cpu.emit.pieces import elements_of, places_of
from tilec.backends.cpu.emit.windows import WORDS, halves_of_windows, has_windows
from tilec.backends.cpu.products.tir import span
from tilec.ir.exprs import dtype_of, int_value
from tilec.lowering.emission.neighbours import are_neighbours

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext

_BITS = 8


def joined_bytes(expr: Expr, ctx: LaneContext) -> Expr | None:
    """The value of ``low | high << 8`` of neighbours in every lane: read as vectors whose words change places
    where the target and the places allow it, else each at once; None for another expression."""
    if ctx.lanes is None or ctx.first is not None:
        return None
    pair = _pair(expr)
    if pair is None or not are_neighbours(pair, ctx):
        return None
    storage, indices = ctx.storage(pair[0].source), tuple(pair[0].indices)
    places = places_of(storage, indices, ctx)
    if places is None or not any(places):
        return None
    first = storage.offset([in_first_lane(index, ctx) for index in indices])
    windows = ctx.width == WORDS and has_windows(ctx.target)
    found = halves_of_windows(storage.data, first, places) if windows else None
    return _each(storage.data, first, places) if found is None else found


def _each(data: Var, first: Expr, places: Sequence[int]) -> Expr:
    """The numbers that begin ``places`` behind ``first``, one after the other."""
    own = sorted(set(places))
    numbers = [tirx.reinterpret("uint16", tirx.BufferLoad(data, [span(first + place, 2)])) for place in own]
    return elements_of(numbers, own, places)


def _pair(expr: Expr) -> tuple[TensorLoad, TensorLoad] | None:
    """The bytes that a number is made of, the lower one first."""
    if not isinstance(expr, tirx.BitwiseOr) or dtype_of(expr) != "uint16":
        return None
    low, high = _byte(expr.a), _byte(_unshifted(expr.b))
    return None if low is None or high is None else (low, high)


def _unshifted(expr: Expr) -> Expr | None:
    return expr.a if isinstance(expr, tirx.LShift) and int_value(expr.b) == _BITS else None


def _byte(expr: Expr | None) -> TensorLoad | None:
    """The element of a buffer of bytes that is brought to 16 bits."""
    if not isinstance(expr, tirx.Cast) or not isinstance(expr.value, TensorLoad):
        return None
    return expr.value if dtype_of(expr.value) == "uint8" else None
