"""Lanes that read neighbours, but not in order: short vectors, whose elements change places."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.vectors.digits import distances, has_digits, in_first_lane
from tilec.backends.cpu.products.tir import span
from tilec.ir.exprs import int_value, linear_in, scalar_dtype, uses
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.math.vectors import lanes_of, literal, reinterpreted, with_lanes

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.lowering.emission.storage import Storage


#: Elements between two that lanes read that are read along with them rather than apart.
WIDEST_GAP = 4
#: Bytes of words of which elements are parts that one instruction takes out.
_WORDS = (2, 4)
#: Bytes of elements of which a vector has so many that those between are read along at any even distance.
_NARROW = 4


def read_pieces(storage: Storage, indices: Sequence[Expr], ctx: LaneContext) -> Expr | None:
    """The elements at ``indices``, whose digits the lanes know; None where one element a lane is as good."""
    if storage.layout is not None or storage.copies > 1:
        return None
    spread = _are_spread(storage, indices, ctx)
    if not spread and not any(has_digits(index, ctx) for index in indices):
        return None
    places = places_of(storage, indices, ctx)
    if places is None:
        return None
    first = storage.offset([in_first_lane(index, ctx) for index in indices])
    if _is_even(places) and not spread:
        return tirx.BufferLoad(storage.data, [span(first, ctx.width)]) if places[1] == 1 else None
    own = sorted(set(places))
    runs = _runs(own)
    if len(runs) >= len(own):
        if 2 * len(own) > ctx.width:
            return None
        runs = [(place, 1) for place in own]
    vectors = [tirx.BufferLoad(storage.data, [span(first + start, count)]) for start, count in runs]
    if ctx.target.arch == "x86_64" and _are_parts_of_words(vectors, places):
        return _parts_of_words(vectors, [start for start, _ in runs], places)
    return elements_of(vectors, [start + number for start, count in runs for number in range(count)], places)


def places_of(storage: Storage, indices: Sequence[Expr], ctx: LaneContext) -> list[int] | None:
    """How far the element of each lane lies from that of the first one; None where that is not known."""
    total = [0] * ctx.width
    for index, stride in zip(indices, storage.strides, strict=True):
        steps, factor = distances(index, ctx), int_value(stride)
        if steps is None or (factor is None and any(steps)):
            return None
        total = [place + step * (factor or 0) for place, step in zip(total, steps, strict=True)]
    return total


def elements_of(vectors: Sequence[Expr], held: Sequence[int], places: Sequence[int]) -> Expr:
    """The elements at ``places``, one a lane, of ``vectors``, which have those at ``held`` side by side."""
    copies = -(-len(places) // len(held))  # a shuffle has no more lanes than it takes
    return tirx.Shuffle([*vectors] * copies, [held.index(place) for place in places])


def _are_parts_of_words(vectors: Sequence[Expr], places: Sequence[int]) -> bool:
    """Whether lanes have every second or fourth integer, a step of two bytes or four, of vectors of whole
    words of so many."""
    dtype = scalar_dtype(vectors[0])
    step = places[1] if len(places) > 1 else 0
    return (
        "int" in dtype
        and element_bytes(dtype) * step in _WORDS
        and step > 1
        and _is_even(list(places))
        and all(lanes_of(vector) % step == 0 for vector in vectors)
    )


def _parts_of_words(vectors: Sequence[Expr], starts: Sequence[int], places: Sequence[int]) -> Expr:
    """The elements at ``places`` as the low parts of words, shifted: elements that change places across a
    vector take three instructions and more, and are widened anew."""
    dtype, step = scalar_dtype(vectors[0]), places[1]
    bits = 8 * element_bytes(dtype)
    kind, words, held = f"uint{bits * step}", [], []
    for vector, start in zip(vectors, starts, strict=True):
        part, count = -start % step, lanes_of(vector) // step
        word = reinterpreted(with_lanes(kind, count), vector)
        words.append(tirx.shift_right(word, literal(bits * part, kind, count)))
        held += [start + part + number * step for number in range(count)]
    return tirx.Cast(with_lanes(dtype, len(places)), elements_of(words, held, places))


def _are_spread(storage: Storage, indices: Sequence[Expr], ctx: LaneContext) -> bool:
    """Whether lanes read every second to fourth element of which a vector has many: colours of pixels, halves
    of pairs, corners of boxes. One by one they take long."""
    if ctx.lanes is None or element_bytes(storage.dtype) > _NARROW:
        return False
    step = 0
    for index, stride in zip(indices, storage.strides, strict=True):
        whole, factor = ctx.facts.inline(index), int_value(stride)
        if not uses(whole, (ctx.lanes.var,)):
            continue
        linear = linear_in(whole, [ctx.lanes.var])
        own = int_value(linear[0]) if linear else None
        if own is None or factor is None:
            return False
        step += own * factor
    return 1 < step <= WIDEST_GAP


def _is_even(places: list[int]) -> bool:
    """Whether the lanes lie as far apart as the first two, as a ramp says."""
    return all(place == number * places[1] for number, place in enumerate(places))


def _runs(places: list[int]) -> list[tuple[int, int]]:
    """Vectors, first place and length, that have all ``places`` and lie between the first and the last."""
    runs: list[tuple[int, int]] = []
    low, high = places[0], places[-1]
    while places:
        near = [place for place in places if place - places[0] < _reach(places)]
        count = min(1 << (near[-1] - near[0]).bit_length(), 1 << ((high - low + 1).bit_length() - 1))
        start = min(near[0], high - count + 1)
        runs.append((start, count))
        places = [place for place in places if place >= start + count]
    return runs


def _reach(places: list[int]) -> int:
    """How far from the first of ``places`` the next ones lie, without a gap that is too wide to read."""
    gaps = pairwise(places)
    return next((last for last, place in gaps if place - last > WIDEST_GAP), places[-1]) - places[0] + 1
