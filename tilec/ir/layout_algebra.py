"""Rewriting layouts: terms, canonical forms, slices, inverses, and what a copy or an access costs.

A *term* is a digit with its weight: the step of the logical index that moves the digit by one. Two layouts
place elements alike exactly where their canonical terms agree.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.ir.layout import Digit, Layout

#: Banks of shared memory, and the bytes of each, on every NVIDIA architecture since Fermi.
BANKS, BANK_BYTES = 32, 4
WARP_LANES = 32


@dataclass(frozen=True)
class Term:
    """``size`` values of one digit, ``weight`` apart in the index and ``stride`` apart in ``space``."""

    weight: int
    size: int
    stride: int
    space: str


def terms(layout: Layout, axis: int) -> tuple[Term, ...]:
    """The digits of one dimension with their weights, least significant first, neighbours joined."""
    found: list[Term] = []
    weight = 1
    for digit in layout.digits[axis]:
        found = _joined(found, Term(weight, digit.size, digit.stride, digit.space))
        weight *= digit.size
    return tuple(found)


def _joined(before: list[Term], term: Term) -> list[Term]:
    """``before`` and one more term; a digit that goes on where the last one ends becomes part of it."""
    if term.size == 1:
        return before
    last = before[-1] if before else None
    goes_on = (
        last is not None
        and last.space == term.space
        and term.stride == last.stride * last.size
        and term.weight == last.weight * last.size
    )
    if last is None or not goes_on:
        return [*before, term]
    return [*before[:-1], Term(last.weight, last.size * term.size, last.stride, last.space)]


def thread_terms(layout: Layout, axis: int) -> tuple[Term, ...]:
    """The terms that spread one dimension over lanes, warps and groups."""
    return tuple(term for term in terms(layout, axis) if term.space not in ("reg", "addr"))


def canonical(layout: Layout) -> Layout:
    """The same places with digits of size 1 left out and neighbours joined."""
    digits = tuple(
        tuple(Digit(term.size, term.stride, term.space) for term in terms(layout, axis))
        for axis in range(len(layout.digits))
    )
    return Layout(digits, layout.swizzle)


def places(layout: Layout, indices: Sequence[int]) -> dict[str, int]:
    """Where one element lies, per space that the layout uses."""
    found: dict[str, int] = {}
    for index, digits in zip(indices, layout.digits, strict=True):
        for digit in digits:
            found[digit.space] = found.get(digit.space, 0) + index % digit.size * digit.stride
            index //= digit.size
    if layout.swizzle is not None:
        found["addr"] = layout.swizzle.apply(found.get("addr", 0))
    return found


def extent_of(layout: Layout, space: str) -> int:
    """One more than the largest place in ``space``."""
    steps = (
        (digit.size - 1) * digit.stride for dim in layout.digits for digit in dim if digit.space == space
    )
    return 1 + sum(steps)


def element_at(layout: Layout, place: Mapping[str, Any]) -> list[Any]:
    """The inverse: the indices of the element at ``place``, integers or expressions per space.

    The layout must send different elements to different places; there is no inverse of a swizzle."""
    indices: list[Any] = []
    for axis in range(len(layout.digits)):
        total: Any = 0
        for term in terms(layout, axis):
            total = total + place[term.space] // term.stride % term.size * term.weight
        indices.append(total)
    return indices


def is_injective(layout: Layout) -> bool:
    """Whether different elements have different places: digits of one space must not overlap."""
    for space in {digit.space for dim in layout.digits for digit in dim}:
        digits = sorted(
            (digit.stride, digit.size)
            for dim in layout.digits
            for digit in dim
            if digit.space == space and digit.size > 1
        )
        top = 1
        for stride, size in digits:
            if stride < top:
                return False
            top = stride * size
    return True


def select(layout: Layout, axes: Sequence[int]) -> Layout:
    """The layout of some dimensions alone, in the order given; registers are numbered anew without gaps.

    Lanes and warps of the dimensions that are left out hold copies: this is the layout of a reduction's
    result once every thread knows it."""
    return packed_registers(Layout(tuple(layout.digits[axis] for axis in axes)))


def packed_registers(layout: Layout) -> Layout:
    """The same threads with register digits packed in the order of their strides."""
    order = sorted(
        (digit.stride, axis, position)
        for axis, dim in enumerate(layout.digits)
        for position, digit in enumerate(dim)
        if digit.space == "reg" and digit.size > 1
    )
    strides, stride = {}, 1
    for _, axis, position in order:
        strides[axis, position] = stride
        stride *= layout.digits[axis][position].size
    digits = tuple(
        tuple(
            Digit(digit.size, strides.get((axis, position), 1), "reg") if digit.space == "reg" else digit
            for position, digit in enumerate(dim)
        )
        for axis, dim in enumerate(layout.digits)
    )
    return Layout(digits)


def same_threads(left: Layout, left_axis: int, right: Layout, right_axis: int) -> bool:
    """Whether the threads that hold an index of one dimension hold it in the other, too."""
    return thread_terms(left, left_axis) == thread_terms(right, right_axis)


def bank_conflicts(
    addresses: Sequence[int], element_bytes: int, width: int = 1, together: int | None = None
) -> int:
    """How many times as long as without conflicts one warp's access of shared memory takes.

    ``addresses`` are of each lane's first element; a lane touches ``width`` elements. Accesses of 8 and 16
    bytes a lane go in halves and quarters of a warp, or ``together`` lanes at once."""
    size = element_bytes * width
    phase = together or max(WARP_LANES // max(size // BANK_BYTES, 1), 1)
    return max(
        (
            _ways(addresses[start : start + phase], element_bytes, size)
            for start in range(0, len(addresses), phase)
        ),
        default=1,
    )


def _ways(addresses: Sequence[int], element_bytes: int, size: int) -> int:
    words = {
        address * element_bytes // BANK_BYTES + step
        for address in addresses
        for step in range(max(size // BANK_BYTES, 1))
    }
    return max(Counter(word % BANKS for word in words).values())


def is_row_major(layout: Layout) -> bool:
    """Whether elements lie in row-major order without gaps, up to a swizzle within rows."""
    return canonical(Layout(layout.digits)) == canonical(Layout.row_major(layout.shape))


def row_pitch(layout: Layout) -> int | None:
    """Places from one row to the next, where the elements of a row lie side by side and a swizzle keeps them
    in it; None for tiles of another order."""
    plain, swizzle, width = is_row_major(layout), layout.swizzle, layout.shape[-1]
    if len(layout.digits) < 2:
        return width if plain and swizzle is None else None
    rows, own = terms(layout, len(layout.digits) - 2), terms(layout, len(layout.digits) - 1)
    if len(rows) > 1 or len(own) > 1 or (own and own[0].stride != 1):
        return None
    pitch = width if plain or not rows else rows[0].stride
    if swizzle is None:
        return pitch
    fits = swizzle.row % pitch == 0 and pitch % (swizzle.width * swizzle.unit) == 0
    lead = [digit.stride for dim in layout.digits[:-2] for digit in dim if digit.size > 1]
    repeats = plain or all(stride % (swizzle.row * swizzle.width) == 0 for stride in lead)
    return pitch if fits and repeats else None


def is_in_slabs(layout: Layout) -> bool:
    """Whether a tile lies in slabs of columns one behind the other, all rows of a slab one below the other,
    and a swizzle keeps elements in the row of their slab, by the number of that row alone."""
    swizzle = layout.swizzle
    if swizzle is None or len(layout.digits) < 2 or len(layout.digits[-1]) != 2:
        return False
    (near, far), rows = layout.digits[-1], terms(layout, len(layout.digits) - 2)
    if len(rows) != 1 or near.stride != 1 or rows[0].stride != near.size or swizzle.row % near.size:
        return False
    period = swizzle.row * swizzle.width
    lead = [digit.stride for dim in layout.digits[:-2] for digit in dim if digit.size > 1]
    inside = near.size % (swizzle.width * swizzle.unit) == 0
    return inside and all(stride % period == 0 for stride in (far.stride, *lead))


def chunk(layout: Layout) -> int:
    """How many neighbours of the last axis lie side by side, in groups that start at multiples of that: a
    power of two, 1 for none. All other strides, and what a swizzle moves, are multiples of it."""
    *lead, last = layout.digits
    own = [digit for digit in last if digit.size > 1]
    if not own or own[0].stride != 1:
        return 1
    others = [digit.stride for dim in (*lead, own[1:]) for digit in dim if digit.size > 1]
    moved = [] if layout.swizzle is None else [layout.swizzle.unit]
    found = math.gcd(own[0].size, *others, *moved)
    return found & -found


def stacked(layout: Layout, count: int) -> Layout:
    """``count`` such tiles one behind the other, numbered by a new first axis, with the same swizzle."""
    period = 128 if layout.swizzle is None else math.lcm(128, layout.swizzle.row * layout.swizzle.width)
    return Layout(((Digit(count, -(-layout.size // period) * period),), *layout.digits), layout.swizzle)
