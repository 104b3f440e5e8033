"""Arrays with guarded surroundings, in host memory and on a device. Needs NumPy and the devices
alone: the runner of a GPU bundle uses it too."""

from __future__ import annotations

import numpy as np

from tilec.portable.devices.base import Device, DeviceArray

MARGIN = 4096  # bytes before and after; keeps the alignment that CUDA wants


class Guarded:
    """An array inside a larger block of bytes ``poison``. Everything around its elements, gaps between rows
    too, keeps them: a read of it shows in the results, a write of it is found by `intact`. Strides are in
    elements; the array starts ``shift`` bytes behind a multiple of 64."""

    def __init__(
        self,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype,
        poison: int,
        margin: int = MARGIN,
        shift: int = 0,
    ) -> None:
        size = dtype.itemsize
        held = held_bytes(shape, strides, dtype)
        #: All bytes, margins included; the array starts ``offset`` bytes into it.
        self.block = aligned(2 * margin + shift + held)
        self.block[...] = poison
        self.offset = margin + shift
        steps = [stride * size for stride in strides]
        inside = slice(self.offset, self.offset + held)
        self.array = window(self.block[inside], shape, steps, dtype)
        covered = np.zeros(self.block.shape, np.bool_)
        if 0 not in shape:
            window(covered[inside], (*shape, size), [*steps, 1], covered.dtype)[...] = True
        self._around, self._poison = ~covered, poison

    def intact(self) -> bool:
        """Whether nothing outside of the array has changed."""
        return bool((self.block[self._around] == self._poison).all())


def held_bytes(shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype) -> int:
    """Bytes from the first element to the end of the last one; strides in elements. One element at least."""
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    return max(span, 1) * dtype.itemsize


def aligned(size: int) -> np.ndarray:
    """Bytes that start at a multiple of 64."""
    block = np.empty(size + 64, np.uint8)
    start = -block.ctypes.data % 64
    return block[start : start + size]


def window(block: np.ndarray, shape: tuple[int, ...], steps: list[int], dtype: np.dtype) -> np.ndarray:
    """An array over bytes; ``steps`` are its strides in bytes."""
    return np.asarray(np.ndarray(shape, dtype, block, strides=steps))


class OnDevice(DeviceArray):
    """A copy of a guarded array's block on a device.

    Raises:
        LaunchError: there is no driver or no such device, or the driver refused.
    """

    def __init__(self, host: Guarded, dtype: str, device: Device) -> None:
        array, memory = host.array, device.memory(host.block.nbytes)
        strides = tuple(step // array.itemsize for step in array.strides)
        super().__init__(memory, array.shape, strides, dtype, array.itemsize, device, host.offset)
        self._host = host
        memory.write(host.block)

    @property
    def host(self) -> np.ndarray:
        """The array that was copied."""
        return self._host.array

    def fetch(self) -> None:
        """Waits for the device and copies the block back to the host's. Raises LaunchError if work on the
        device failed: nothing runs there in this process from then on."""
        self._memory.read(self._host.block)
