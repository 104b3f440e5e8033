"""Buffers of the interpreter: reads outside give zero, writes outside are dropped."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilec.ir.interp.values import cast, undefined

Index = Any


class Storage:
    """One buffer. ``array`` has the logical shape; for a buffer allocated inside a vectorised Parallel the
    axes of the iteration grid stand in front, and ``lanes`` selects each iteration's own part."""

    def __init__(self, array: np.ndarray, lanes: tuple[np.ndarray, ...] = ()) -> None:
        self.array = array
        self.lanes = lanes

    @classmethod
    def undefined(cls, shape: tuple[int, ...], dtype: np.dtype, grid: tuple[int, ...] = ()) -> Storage:
        """A new buffer of undefined contents, one per iteration of ``grid``."""
        return cls(undefined((*grid, *shape), dtype), tuple(np.ogrid[tuple(slice(0, n) for n in grid)]))

    @classmethod
    def at_address(
        cls, address: int, shape: tuple[int, ...], dtype: np.dtype, strides: tuple[int, ...] = ()
    ) -> Storage:
        """What lies at an address of this process; ``strides`` in elements, row-major for none."""
        steps = strides or tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        reach = 1 + sum((extent - 1) * step for extent, step in zip(shape, steps, strict=True))
        size = 0 if 0 in shape else reach * dtype.itemsize
        memory = np.frombuffer(memoryview((ctypes.c_char * size).from_address(address)), np.uint8)
        widths = [step * dtype.itemsize for step in steps]
        return cls(np.ndarray(shape, dtype, memory, strides=widths))

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape."""
        return self.array.shape[len(self.lanes) :]

    @property
    def dtype(self) -> np.dtype:
        """The element type."""
        return self.array.dtype

    def read(self, indices: Sequence[Index]) -> Any:
        """The elements at broadcast indices; zero where an index is outside."""
        if not self.lanes and all(isinstance(index, np.generic) for index in indices):
            return self._element(indices)
        inside, places = self._locate(indices)
        if inside is False:
            return np.zeros((), self.dtype)[()]
        found = self.array[self.lanes + tuple(places)]
        return found if inside is True else np.where(inside, found, np.zeros((), self.dtype))

    def _element(self, indices: Sequence[Index]) -> Any:
        """One element of a buffer that all iterations share."""
        inside = all(0 <= index < extent for index, extent in zip(indices, self.shape, strict=True))
        return self.array[tuple(indices)] if inside else np.zeros((), self.dtype)[()]

    def write(self, indices: Sequence[Index], value: Any, mask: Any) -> None:
        """Writes where ``mask`` holds and the indices are inside."""
        selected = self._select(indices, value, mask, ())
        if selected is not None:
            places, values = selected
            np.atleast_1d(self.array)[places] = values

    def combine(
        self, ufunc: np.ufunc, indices: Sequence[Index], value: Any, mask: Any, grid: tuple[int, ...]
    ) -> None:
        """``element = ufunc(element, value)`` once per iteration of ``grid``, equal indices included."""
        selected = self._select(indices, value, mask, grid)
        if selected is not None:
            places, values = selected
            ufunc.at(np.atleast_1d(self.array), places, values)

    def _locate(self, indices: Sequence[Index]) -> tuple[Any, list[Any]]:
        """Which indices are inside (True, False or an array), and the indices moved inside."""
        inside: Any = True
        places: list[Any] = []
        for index, extent in zip(indices, self.shape, strict=True):
            array = np.asarray(index)
            if extent == 0:
                return False, []
            if array.min() < 0 or array.max() >= extent:
                inside = np.logical_and(inside, (array >= 0) & (array < extent))
                array = np.clip(array, 0, extent - 1)
            places.append(array)
        if inside is not True and not np.any(inside):
            return False, places
        return inside, places

    def _select(self, indices: Sequence[Index], value: Any, mask: Any, grid: tuple[int, ...]) -> Any:
        """Index arrays and values of the writes that happen, or None for none. What has no axes is indexed as
        if it had one."""
        inside, places = self._locate(indices)
        if inside is False or mask is False:
            return None
        wanted = np.logical_and(inside, mask) if mask is not True else inside
        places = [*self.lanes, *places] or [np.intp(0)]
        shapes = [np.shape(part) for part in (value, wanted, *places)]
        shape = np.broadcast_shapes(grid, *shapes)
        if not shape:
            return (tuple(places), value) if bool(wanted) else None
        full = [np.broadcast_to(place, shape) for place in places]
        values = np.broadcast_to(value, shape)
        if wanted is True:
            return tuple(full), values
        chosen = np.broadcast_to(wanted, shape)
        return tuple(place[chosen] for place in full), values[chosen]

    def load_box(self, start: Sequence[int], extent: Sequence[int]) -> np.ndarray:
        """A copy of a box; zero outside of the buffer."""
        inner, outer = self._overlap(start, extent)
        box = np.zeros(tuple(extent), self.dtype)
        box[outer] = self.array[inner]
        return box

    def store_box(self, start: Sequence[int], box: np.ndarray) -> None:
        """Writes a box, cast to the buffer's type; what lies outside is dropped."""
        inner, outer = self._overlap(start, box.shape)
        self.array[inner] = cast(box[outer], self.dtype)

    def _overlap(
        self, start: Sequence[int], extent: Sequence[int]
    ) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Slices of the buffer and of the box where they overlap."""
        inner, outer = [], []
        for low, count, size in zip(start, extent, self.shape, strict=True):
            first, last = min(max(low, 0), size), max(min(low + count, size), 0)
            last = max(first, last)
            inner.append(slice(first, last))
            outer.append(slice(first - low, last - low) if last > first else slice(0, 0))
        return tuple(inner), tuple(outer)
