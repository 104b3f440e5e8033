"""Arguments of a call in memory of the host or of a CUDA device, filled from what a problem says.

A tensor that is read holds a block of bytes over and over (``pattern``), so that a folder of candidates stays
small however large the tensors are; integers that index something are there in full.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilec.portable.loader import DeviceMemory, cuda_driver
from tilec.portable.runner.numbers import size_of

POISON = 0xFF  # in every byte no number, in any type of floats


@dataclass(frozen=True)
class Device:
    """Where work runs, as torch names devices: "cpu" or "cuda", and which."""

    type: str
    index: int = 0

    def __str__(self) -> str:
        return self.type if self.type == "cpu" else f"{self.type}:{self.index}"


def parse_device(text: str) -> Device:
    """``cpu``, ``cuda`` or ``cuda:1``. Raises ValueError."""
    kind, _, number = text.partition(":")
    if text != "cpu" and (kind != "cuda" or not (number or "0").isdecimal()):
        raise ValueError(f"{text!r} is no device; write cpu, cuda or cuda:<number>")
    return Device(kind, int(number or 0))


class Tensor:
    """One tensor of a call; the loader takes it for one of torch. ``spec``: name, dtype, shape, strides (in
    elements) and, where it is read, ``fill``: offset and bytes of its content in ``arrays``."""

    def __init__(self, spec: Mapping[str, Any], arrays: bytes, device: Device) -> None:
        self.name, self.dtype, self.device = spec["name"], spec["dtype"], device
        self.shape, self._strides = tuple(spec["shape"]), tuple(spec["strides"])
        self.count = span(self.shape, self._strides)
        self.bytes = max(self.count * size_of(self.dtype), 1)
        self._fill, self._arrays = spec.get("fill"), arrays
        self._host = None if device.type == "cuda" else mmap.mmap(-1, self.bytes)
        self._memory = DeviceMemory(device.index, self.bytes) if device.type == "cuda" else None
        self.reset()

    def data_ptr(self) -> int:
        """The address of the first element."""
        if self._memory is not None:
            return self._memory.address
        assert self._host is not None
        return ctypes.addressof(ctypes.c_char.from_buffer(self._host))

    def stride(self) -> tuple[int, ...]:
        """Strides in elements."""
        return self._strides

    def reset(self) -> None:
        """Gives it the content that it has before a call."""
        if self._host is not None:
            _write(self._host, self._content())
            return
        if self._fill is None:
            filling = ctypes.c_uint64(self.data_ptr()), ctypes.c_ubyte(POISON), ctypes.c_size_t(self.bytes)
            cuda_driver().call(self.device.index, "cuMemsetD8_v2", *filling)
            return
        staging = mmap.mmap(-1, self.bytes)
        _write(staging, self._content())
        assert self._memory is not None
        self._memory.write(staging)

    def read(self) -> memoryview:
        """Its bytes, when the device has done its work."""
        if self._host is not None:
            return memoryview(self._host)
        staging = bytearray(self.bytes)
        assert self._memory is not None
        self._memory.read(staging)
        return memoryview(staging)

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


def _write(memory: mmap.mmap, block: bytes) -> None:
    """``block`` over and over."""
    memory.seek(0)
    left, chunk = len(memory), block * max(1, (1 << 20) // len(block))
    while left > 0:
        memory.write(chunk[:left])
        left -= len(chunk)


def arguments(point: Mapping[str, Any], arrays: bytes, device: Device) -> dict[str, Any]:
    """The parameters of a call by name: tensors and numbers."""
    return {
        spec["name"]: Tensor(spec, arrays, device) if "shape" in spec else spec["value"]
        for spec in point["params"]
    }
