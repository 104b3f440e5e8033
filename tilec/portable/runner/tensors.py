"""Arguments of a call in memory of a device, filled from what a problem says.

A tensor that is read holds a block of bytes over and over (``pattern``), so that a folder of candidates stays
small however large the tensors are; integers that index something are there in full.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilec.portable.devices.base import Device, DeviceArray
from tilec.portable.runner.numbers import size_of

POISON = 0xFF  # in every byte no number, in any type of floats


class Tensor(DeviceArray):
    """One tensor of a call. ``spec``: name, dtype, shape, strides (in
    elements) and, where it is read, ``fill``: offset and bytes of its content in ``arrays``."""

    def __init__(self, spec: Mapping[str, Any], arrays: bytes, device: Device) -> None:
        shape, strides, itemsize = tuple(spec["shape"]), tuple(spec["strides"]), size_of(spec["dtype"])
        self.name, self.count = spec["name"], span(shape, strides)
        self.bytes = max(self.count * itemsize, 1)
        super().__init__(device.memory(self.bytes), shape, strides, spec["dtype"], itemsize, device)
        self._fill, self._arrays = spec.get("fill"), arrays
        self.reset()

    def reset(self) -> None:
        """Gives it the content that it has before a call."""
        self._memory.fill(self._content())

    def read(self) -> memoryview:
        """Its bytes, when the device has done its work."""
        return self._memory.content()

    def _content(self) -> bytes:
        if self._fill is None:
            return bytes([POISON])
        start = self._fill["offset"]
        return self._arrays[start : start + self._fill["bytes"]]


def span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to the last one."""
    if 0 in shape:
        return 0
    return 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))


def arguments(point: Mapping[str, Any], arrays: bytes, device: Device) -> dict[str, Any]:
    """The parameters of a call by name: tensors and numbers."""
    return {
        spec["name"]: Tensor(spec, arrays, device) if "shape" in spec else spec["value"]
        for spec in point["params"]
    }
