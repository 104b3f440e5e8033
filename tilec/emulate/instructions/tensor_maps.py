"""Tensor maps: which bytes of a tensor a bulk copy moves (PTX ISA, "Tensors"; CUDA driver API, "Tensor Map
Object Management")."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec.emulate.state.clocks import Hazard
from tilec.emulate.state.memory import Memory

#: Bytes that bulk copies move as one.
CHUNK = 16
#: Bits of a corner of a window, and of the offset of a tap, by axes.
_CORNER_BITS = {1: 16, 2: 8, 3: 5}


@dataclass(frozen=True)
class TensorMap:
    """A tensor map over a memory: extents and box innermost first, strides in bytes without the innermost.
    ``dtype`` is that of an element. ``rest``: 0, or the rows of tiles of one box or more, whose boxes have
    equal shares of the rows beyond whole tiles."""

    memory: Memory
    dtype: np.dtype[Any]
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    rest: int = field(default=0, kw_only=True)

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    def check(self) -> None:
        """Hazard for what cuTensorMapEncodeTiled refuses."""
        row = self.box[0] * self.size
        if row % CHUNK or any(extent > 256 or extent < 1 for extent in self.box):
            raise Hazard(f"a box of {self.box} elements of {self.size} bytes over {self.memory.name}")
        if self.swizzle and row > self.swizzle:
            raise Hazard(f"a box with rows of {row} bytes in a swizzle of {self.swizzle}")
        if any(stride % CHUNK for stride in self.strides):
            raise Hazard(f"rows of {self.memory.name} {self.strides} bytes apart, no multiples of {CHUNK}")

    @property
    def moved(self) -> tuple[int, ...]:
        """The box that moves at once."""
        left = self.extents[1] % self.rest if self.rest else 0
        if not left:
            return self.box
        rows = -(-left // -(-self.rest // self.box[1]))
        return (self.box[0], rows, *self.box[2:])

    @property
    def bytes(self) -> int:
        """Bytes of a box."""
        return int(np.prod(self.moved)) * self.size

    def left_bytes(self, start: tuple[int, ...]) -> int:
        """Bytes of a tile behind the box at ``start``, where that is the last one of what is left."""
        boxes = -(-self.rest // self.box[1]) if self.rest else 0
        if not boxes or start[1] % self.rest // self.moved[1] + 1 < boxes:
            return 0
        return boxes * (int(np.prod(self.box)) * self.size - self.bytes)

    def check_start(self, start: tuple[int, ...], is_store: bool) -> None:
        """Hazard for a start at which an H200 stops as at an illegal instruction: innermost coordinates are
        multiples of 16 bytes, and a box may begin outside of the tensor for loads alone."""
        if len(start) != len(self.extents):
            raise Hazard(f"a box with {len(start)} coordinates of a map of {len(self.extents)} axes")
        if start[0] * self.size % CHUNK:
            raise Hazard(
                f"a box of {self.memory.name} that starts {start[0]} elements of {self.size} bytes into its "
                f"rows, which is no multiple of {CHUNK} bytes"
            )
        if is_store and min(start) < 0:
            raise Hazard(f"a box is stored to {self.memory.name} at {start}, before its start")

    def places(self, start: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Byte offsets of the elements of the box at ``start`` in the order of shared memory, and which of
        them lie inside of the tensor."""
        offsets, inside = np.zeros((), np.int64), np.ones((), np.bool_)
        for axis, count in reversed(list(enumerate(self.moved))):
            index = start[axis] + np.arange(count)
            stride = self.size if axis == 0 else self.strides[axis - 1]
            offsets = offsets[..., None] + index * stride
            inside = inside[..., None] & (index >= 0) & (index < self.extents[axis])
        return offsets.reshape(-1), inside.reshape(-1)


@dataclass(frozen=True)
class ImageMap(TensorMap):
    """A tensor map that walks over the pixels of images (PTX ISA, "im2col mode"). The box is channels by
    pixels; ``lower``, ``upper`` and ``steps`` are per axis between channels and batch, innermost first."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    steps: tuple[int, ...]

    def check(self) -> None:
        """Hazard for what cuTensorMapEncodeIm2col refuses."""
        channels, pixels = self.box
        axes = len(self.extents) - 2
        if not 1 <= axes <= 3 or not len(self.lower) == len(self.upper) == len(self.steps) == axes:
            raise Hazard(f"a window of {len(self.lower)} axes over {self.memory.name}")
        if channels * self.size % CHUNK or not 0 < channels <= 256 or not 0 < pixels <= 1024:
            raise Hazard(f"{pixels} pixels of {channels} channels of {self.size} bytes of {self.memory.name}")
        if self.swizzle and channels * self.size > self.swizzle:
            raise Hazard(f"pixels of {channels * self.size} bytes in a swizzle of {self.swizzle}")
        if any(stride % CHUNK for stride in self.strides):
            raise Hazard(f"rows of {self.memory.name} {self.strides} bytes apart, no multiples of {CHUNK}")
        reach = 1 << _CORNER_BITS[axes] - 1
        if any(not -reach <= corner < reach for corner in (*self.lower, *self.upper)):
            raise Hazard(f"corners {self.lower} and {self.upper} are beyond {-reach} to {reach - 1}")
        if any(not 1 <= step <= 8 for step in self.steps):
            raise Hazard(f"steps of {self.steps} pixels, which are not 1 to 8")
        if any(self._last(axis) < self.lower[axis] for axis in range(axes)):
            raise Hazard(f"a window from {self.lower} to {self.upper} over {self.extents[1:-1]} has no pixel")

    def _last(self, axis: int) -> int:
        """The last place of the window on an axis."""
        return self.extents[1 + axis] - 1 + self.upper[axis]

    def pixels(self, start: tuple[int, ...], moved: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """As `places`, for the pixels of the window from ``start`` on, ``moved`` by a tap: a step to the
        right; behind the last place of an axis back to the first one, and a step along the next axis."""
        axes = len(self.lower)
        if any(offset < 0 or offset >> _CORNER_BITS[axes] for offset in moved):
            raise Hazard(f"a tap moves pixels by {moved}, which has no place in {_CORNER_BITS[axes]} bits")
        first, at = start[0], list(start[1:])
        for axis in range(axes):
            if not self.lower[axis] <= at[axis] <= self._last(axis):
                raise Hazard(
                    f"pixels of {self.memory.name} from {start} on: axis {axis + 1} lies outside of the "
                    f"window, which goes from {self.lower[axis]} to {self._last(axis)}"
                )
        offsets, inside = [], []
        channels = first + np.arange(self.box[0])
        for _ in range(self.box[1]):
            where = (*(place + offset for place, offset in zip(at, moved, strict=False)), at[-1])
            pairs = list(zip(where, self.extents[1:], strict=True))
            meets = all(0 <= index < extent for index, extent in pairs)
            row = sum(index * stride for index, stride in zip(where, self.strides, strict=True))
            offsets.append(row + channels * self.size)
            inside.append((channels >= 0) & (channels < self.extents[0]) & meets)
            self._step(at)
        return np.concatenate(offsets), np.concatenate(inside)

    def _step(self, at: list[int]) -> None:
        """On to the next pixel."""
        for axis, step in enumerate(self.steps):
            at[axis] += step
            if at[axis] <= self._last(axis):
                return
            at[axis] = self.lower[axis]
        at[-1] += 1
