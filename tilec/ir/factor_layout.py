"""A table of places as a digit map, where one explains it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np

from tilec.ir.layout import Digit, Layout, Swizzle
from tilec.ir.layout_algebra import is_injective

#: Swizzles that are looked for: chunks that trade places, and places of a chunk.
_WIDTHS, _UNITS = (8, 4, 2, 16, 32), (1, 2, 4, 8, 16, 32, 64)
#: How many steps along an axis may change the phase first, and elements of an axis that are looked at first.
_ROWS, _CORNER = 8, 32


def factored(places: Mapping[str, np.ndarray]) -> Layout | None:
    """The layout that puts element ``indices`` at ``places[space][indices]`` of every space; None where no
    digits do, where elements share a place, or where the first element does not lie at 0."""
    digits = _additive(places)
    if digits is None and set(places) == {"addr"}:
        return _swizzled(places["addr"])
    layout = None if digits is None else Layout(digits)
    return layout if layout is not None and is_injective(layout) else None


def _swizzled(addresses: np.ndarray) -> Layout | None:
    corner = addresses[tuple(slice(_CORNER) for _ in addresses.shape)]
    for swizzle in _swizzles(addresses):
        if _additive({"addr": swizzle.apply(corner)}) is None:
            continue
        digits = _additive({"addr": swizzle.apply(addresses)})
        if digits is not None and is_injective(Layout(digits)) and addresses.max() < Layout(digits).size:
            return Layout(digits, swizzle)
    return None


def _swizzles(addresses: np.ndarray) -> Iterator[Swizzle]:
    """Those whose phase changes with one of the first steps along an axis."""
    lines = np.concatenate([_line(addresses, axis)[:_CORNER] for axis in range(addresses.ndim)])
    for width, unit in product(_WIDTHS, reversed(_UNITS)):
        group = width * unit
        for row in sorted({int(place) // group * group for place in lines} - {0})[:_ROWS]:
            yield Swizzle(width, unit, row)


def _additive(places: Mapping[str, np.ndarray]) -> tuple[tuple[Digit, ...], ...] | None:
    """The digits of each axis, where a place is a sum over the axes."""
    first = next(iter(places.values()))
    if any(int(table.flat[0]) for table in places.values()):
        return None
    lines = [{space: _line(table, axis) for space, table in places.items()} for axis in range(first.ndim)]
    for space, table in places.items():
        total = np.zeros_like(table)
        for axis, line in enumerate(lines):
            shape = [1] * first.ndim
            shape[axis] = -1
            total = total + line[space].reshape(shape)
        if not np.array_equal(total, table):
            return None
    found = [_digits(line) for line in lines]
    return None if any(digits is None for digits in found) else tuple(found)  # type: ignore[arg-type]


def _line(table: np.ndarray, axis: int) -> np.ndarray:
    """The places along one axis from the first element on."""
    return np.moveaxis(table, axis, 0).reshape(table.shape[axis], -1)[:, 0]


def _digits(line: Mapping[str, np.ndarray]) -> tuple[Digit, ...] | None:
    """The digits of one axis, least significant first."""
    count = len(next(iter(line.values())))
    if count == 1:
        return ()
    moved = [(space, int(table[1])) for space, table in line.items() if table[1]]
    if len(moved) != 1 or moved[0][1] < 0:
        return None
    ((space, stride),) = moved
    size = next((size for size in _divisors(count) if _goes_on(line, space, stride, size)), None)
    if size is None:
        return None
    rest = _digits({name: table[::size] for name, table in line.items()})
    return None if rest is None else (Digit(size, stride, space), *rest)


def _divisors(count: int) -> list[int]:
    """The divisors of ``count`` but 1, the largest first."""
    return [size for size in range(count, 1, -1) if count % size == 0]


def _goes_on(line: Mapping[str, np.ndarray], space: str, stride: int, size: int) -> bool:
    """Whether each ``size`` neighbours lie ``stride`` apart in ``space``, from a place of their own on."""
    for name, table in line.items():
        groups = table.reshape(-1, size)
        step = np.arange(size) * (stride if name == space else 0)
        if not np.array_equal(groups, groups[:, :1] + step):
            return False
    return True
