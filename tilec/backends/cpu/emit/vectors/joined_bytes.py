"""Numbers of 16 or 32 bits that lanes make of bytes each, as files have them at any distance: scales of
blocks, for instance. Read one by one, numbers are put into a vector by an instruction each, all of one port.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cpu.emit.vectors.digits import in_first_lane
from tilec.backends.cpu.emit.vectors.pieces import elements_of, places_of
from tilec.backends.cpu.emit.vectors.windows import WORDS, halves_of_windows
from tilec.backends.cpu.products.tir import span
from tilec.ir.exprs import dtype_of, int_value
from tilec.lowering.emission.neighbours import are_neighbours
from tilec.lowering.math.vectors import reinterpreted, with_lanes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext

_BITS = 8
_BYTES = ("int8", "uint8")
#: Bytes of numbers that are made of them.
_COUNT = {"uint16": 2, "int32": 4, "uint32": 4}
_HALF = 2
#: How many vectors give numbers sooner than one load for each.
_WINDOWS = 5


def joined_bytes(expr: Expr, ctx: LaneContext) -> Expr | None:
    """The value of ``low | high << 8`` of neighbours in every lane, or of four of them: one vector where
    numbers lie side by side, vectors whose words change places where the target and the places allow it, else
    each at once; None for another expression."""
    if ctx.lanes is None or ctx.first is not None or dtype_of(expr) not in _COUNT:
        return None
    parts = _parts(expr)
    if parts is None or not are_neighbours(parts, ctx):
        return None
    storage, indices = ctx.storage(parts[0].source), tuple(parts[0].indices)
    places = places_of(storage, indices, ctx)
    if places is None or not any(places):
        return None
    first = storage.offset([in_first_lane(index, ctx) for index in indices])
    if all(place == lane * len(parts) for lane, place in enumerate(places)):
        return _side_by_side(storage.data, first, dtype_of(expr), ctx.width)
    windows = len(parts) == _HALF and ctx.width == WORDS
    found = halves_of_windows(storage, indices, 1, _WINDOWS, ctx) if windows else None
    return _each(storage.data, first, places, dtype_of(expr)) if found is None else found


def _side_by_side(data: Var, first: Expr, dtype: str, lanes: int) -> Expr:
    """The numbers of all lanes, in their order from ``first`` on."""
    whole = tirx.BufferLoad(data, [span(first, lanes * _COUNT[dtype])])
    return reinterpreted(with_lanes(dtype, lanes), whole)


def _each(data: Var, first: Expr, places: Sequence[int], dtype: str) -> Expr:
    """The numbers that begin ``places`` behind ``first``, one after the other."""
    own = sorted(set(places))
    numbers = [
        reinterpreted(dtype, tirx.BufferLoad(data, [span(first + place, _COUNT[dtype])])) for place in own
    ]
    return elements_of(numbers, own, places)


def _parts(expr: Expr) -> list[TensorLoad] | None:
    """The bytes that a number is made of, the lowest one first."""
    count, parts = _COUNT[dtype_of(expr)], []
    for number in range(count - 1, 0, -1):
        if not isinstance(expr, tirx.BitwiseOr):
            return None
        parts.append(_byte(_unshifted(expr.b, number * _BITS)))
        expr = expr.a
    found = [part for part in (_byte(expr), *reversed(parts)) if part is not None]
    return found if len(found) == count else None


def _unshifted(expr: Expr, bits: int) -> Expr | None:
    return expr.a if isinstance(expr, tirx.LShift) and int_value(expr.b) == bits else None


def _byte(expr: Expr | None) -> TensorLoad | None:
    """The element of a buffer of bytes that is brought to more bits, and those without its sign."""
    if not isinstance(expr, tirx.Cast):
        return None
    inner = expr.value
    if isinstance(inner, tirx.Cast) and dtype_of(inner) == "uint8":
        inner = inner.value
    elif dtype_of(inner) != "uint8":
        return None
    return inner if isinstance(inner, TensorLoad) and dtype_of(inner) in _BYTES else None
