"""Memories of an emulated device: bytes with bounds, alignment and a shadow of who touched them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilec.emulate.state.clocks import Hazard
from tilec.emulate.state.races import Access, Shadow

_VECTORS = {size: np.dtype(f"V{size}") for size in (1, 2, 4, 8, 16)}
#: Where a block's dynamic shared memory starts in its window: below lies what the system keeps.
SHARED_BASE = 1024


@dataclass(frozen=True, eq=False)
class At:
    """Generic addresses in one memory: byte offsets, one a lane or one for all."""

    memory: Memory
    offset: Any


class Memory:
    """``size`` bytes. ``name`` is how messages call it."""

    def __init__(
        self, name: str, size: int, *, data: np.ndarray | None = None, written: bool, is_global: bool
    ) -> None:
        self.name, self.size, self.is_global = name, size, is_global
        padded = -(-size // 16) * 16
        self.bytes = np.zeros(padded, np.uint8)
        if data is not None:
            self.bytes[:size] = data
        self._views = {width: self.bytes.view(kind) for width, kind in _VECTORS.items()}
        self.shadow = Shadow(name, padded, written, is_global)
        self.reserved: dict[int, int] = {}
        self.barriers: dict[int, Any] = {}

    # ---- addresses ----

    def check(self, offsets: np.ndarray, size: int, verb: str) -> None:
        """Hazard for an access out of bounds, or at an address that is not a multiple of its size."""
        low, high = int(offsets.min()), int(offsets.max())
        if low < 0 or high + size > self.size:
            wrong = int(offsets[(offsets < 0) | (offsets + size > self.size)].min())
            raise Hazard(
                f"{verb} of {size} bytes at byte {wrong} of {self.name}, which has {self.size}",
                remedy="guard the access, or clamp its index",
            )
        if size > 1 and (offsets & (size - 1)).any():
            wrong = int(offsets[np.flatnonzero(offsets & (size - 1))[0]])
            raise Hazard(f"{verb} of {size} bytes at byte {wrong} of {self.name}, which is not aligned")
        for start, length in self.reserved.items():
            if low < start + length and high + size > start:
                touched = (offsets < start + length) & (offsets + size > start)
                if touched.any():
                    raise Hazard(f"{verb} of the mbarrier at byte {start} of {self.name}")

    # ---- accesses ----

    def read(self, offsets: np.ndarray, size: int, access: Access) -> np.ndarray:
        """The bytes at each offset, one row each."""
        self.check(offsets, size, "a read")
        self.shadow.read(offsets, size, access)
        return self.peek(offsets, size)

    def peek(self, offsets: np.ndarray, size: int) -> np.ndarray:
        """`read` without a check."""
        found = self._views[size][offsets // size] if size > 1 else self.bytes[offsets]
        return np.asarray(found.view(np.uint8)).reshape(len(offsets), size)

    def write(self, offsets: np.ndarray, values: np.ndarray, access: Access) -> None:
        """Writes one row of bytes at each offset."""
        size = values.shape[1]
        self.check(offsets, size, "a write")
        clash = self.shadow.write(offsets, size, access, lambda: self._holds(offsets, values))
        self.poke(offsets, values)
        if len(clash):
            wrong = np.isin(offsets, clash) & ~self._holds(offsets, values)
            if wrong.any():
                place = int(offsets[np.flatnonzero(wrong)[0]])
                raise Hazard(
                    f"several warps write byte {place} of {self.name} at once, with different values"
                )

    def _holds(self, offsets: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Which offsets hold their values."""
        return np.asarray((self.peek(offsets, values.shape[1]) == values).all(axis=1))

    def poke(self, offsets: np.ndarray, values: np.ndarray) -> None:
        """`write` without a check."""
        size = values.shape[1]
        if size == 1:
            self.bytes[offsets] = values[:, 0]
        else:
            rows = np.ascontiguousarray(values)
            self._views[size][offsets // size] = rows.view(_VECTORS[size])[:, 0]

    def renew(self, begins_early: bool) -> None:
        """A new launch: what earlier ones have written is there for all, or for those who have waited."""
        before = self.shadow
        self.shadow = Shadow(self.name, len(self.bytes), True, self.is_global)
        if before.has_gaps():
            self.shadow.keep_gaps(before)
        if begins_early:
            self.shadow.keep_earlier(before)

    def reserve(self, offset: int, size: int) -> None:
        """From now on these bytes are no plain memory: a barrier lives there."""
        self.check(np.asarray([offset]), size, "an mbarrier")
        self.reserved[offset] = size


class Part(Memory):
    """``size`` bytes of ``whole`` from ``start`` on: a tensor that shares memory with others."""

    def __init__(self, name: str, whole: Memory, start: int, size: int) -> None:
        super().__init__(name, size, written=True, is_global=True)
        self.whole, self.start = whole, start
        self.bytes = whole.bytes[start : start + size]

    def read(self, offsets: np.ndarray, size: int, access: Access) -> np.ndarray:
        """The bytes at each offset, one row each."""
        self.check(offsets, size, "a read")
        return self.whole.read(offsets + self.start, size, access)

    def peek(self, offsets: np.ndarray, size: int) -> np.ndarray:
        """`read` without a check."""
        return self.whole.peek(offsets + self.start, size)

    def write(self, offsets: np.ndarray, values: np.ndarray, access: Access) -> None:
        """Writes one row of bytes at each offset."""
        self.check(offsets, values.shape[1], "a write")
        self.whole.write(offsets + self.start, values, access)

    def poke(self, offsets: np.ndarray, values: np.ndarray) -> None:
        """`write` without a check."""
        self.whole.poke(offsets + self.start, values)

    def renew(self, begins_early: bool) -> None:
        """The whole has a shadow."""


class HostMemory(Memory):
    """The memory of this process at its own addresses, which kernels get as numbers: nothing is known of its
    bounds, and of the order between warps that touch it."""

    def __init__(self) -> None:
        super().__init__("memory at an address", 0, written=True, is_global=True)

    def check(self, offsets: np.ndarray, size: int, verb: str) -> None:
        """Hazard for NULL, and for an address that is not a multiple of the access's size."""
        if not offsets.all() or (offsets & (size - 1)).any():
            wrong = int(offsets[(offsets == 0) | ((offsets & (size - 1)) != 0)][0])
            raise Hazard(f"{verb} of {size} bytes at the address {wrong:#x}")

    def read(self, offsets: np.ndarray, size: int, access: Access) -> np.ndarray:
        """The bytes at each address, one row each."""
        self.check(offsets, size, "a read")
        return self.peek(offsets, size)

    def peek(self, offsets: np.ndarray, size: int) -> np.ndarray:
        """`read` without a check."""
        rows = b"".join(ctypes.string_at(int(address), size) for address in offsets)
        return np.frombuffer(rows, np.uint8).reshape(len(offsets), size)

    def write(self, offsets: np.ndarray, values: np.ndarray, access: Access) -> None:
        """Writes one row of bytes at each address."""
        self.check(offsets, values.shape[1], "a write")
        self.poke(offsets, values)

    def poke(self, offsets: np.ndarray, values: np.ndarray) -> None:
        """`write` without a check."""
        for address, row in zip(offsets, values, strict=True):
            ctypes.memmove(int(address), row.tobytes(), len(row))
