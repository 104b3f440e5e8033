"""NVIDIA GPUs by the driver alone; torch where its work is measured beside."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

from tilec.portable import graphs
from tilec.portable.devices.base import Device, Memory
from tilec.portable.loader import CUDA, DeviceMemory, ManagedMemory, cuda_driver
from tilec.portable.timing import PAUSE, Call, Sampler

#: Attributes of cuDeviceGetAttribute, by what they are called here.
_ATTRIBUTES = {
    "clock_khz": 13,
    "multiprocessors": 16,
    "memory_khz": 36,
    "bus_bits": 37,
    "l2_bytes": 38,
    "major": 75,
    "minor": 76,
}


class CudaMemory(DeviceMemory, Memory):
    """A block of the driver's."""

    def fill(self, block: bytes) -> None:
        """A single byte without the way through the host."""
        if len(block) > 1:
            super().fill(block)
            return
        filling = ctypes.c_uint64(self.address), ctypes.c_ubyte(block[0]), ctypes.c_size_t(self.size)
        self._call("cuMemsetD8_v2", *filling)


class _SharedMemory(ManagedMemory, Memory):
    """A block that moves to who touches it."""

    def read(self, data: Any) -> None:
        """As `Memory.read`."""
        cuda_driver().call(self._device, "cuCtxSynchronize")
        ctypes.memmove((ctypes.c_char * self.size).from_buffer(data), self.address, self.size)


class CudaDevice(Device):
    """Times by graphs of calls on a stream of its own."""

    type, dlpack = "cuda", CUDA

    @property
    def torch(self) -> str:
        """The same."""
        return str(self)

    @cached_property
    def _timed(self) -> graphs.Device:
        return graphs.Device(self.index)

    def facts(self) -> dict[str, Any]:
        """As the driver says."""
        driver, handle, version = cuda_driver(), ctypes.c_int(), ctypes.c_int()
        name = ctypes.create_string_buffer(100)
        driver.call(self.index, "cuDeviceGet", ctypes.byref(handle), self.index)
        driver.call(self.index, "cuDeviceGetName", name, len(name), handle)
        driver.call(self.index, "cuDriverGetVersion", ctypes.byref(version))
        found: dict[str, Any] = {
            "name": name.value.decode(),
            "driver": f"CUDA {version.value // 1000}.{version.value % 1000 // 10}",
        }
        for key, attribute in _ATTRIBUTES.items():
            value = ctypes.c_int()
            driver.call(self.index, "cuDeviceGetAttribute", ctypes.byref(value), attribute, handle)
            found[key] = value.value
        return found

    def memory(self, size: int) -> CudaMemory:
        """At a multiple of 256 bytes."""
        return CudaMemory(self.index, size)

    def shared_memory(self, size: int) -> Memory:
        """Managed memory."""
        return _SharedMemory(size, self.index)

    def synchronize(self) -> None:
        """Waits for the context."""
        cuda_driver().call(self.index, "cuCtxSynchronize")

    def enter(self, threads: int) -> None:
        """Makes the context current: no call has to change it."""
        cuda_driver().enter(self.index)

    def options(self, threads: int) -> dict[str, Any]:
        """The stream that is measured."""
        return {"stream": self._timed.stream}

    def sampler(
        self,
        call: Call,
        sets: int = 1,
        *,
        clock: Callable[[], float] = time.perf_counter,
        pause: float = PAUSE,
    ) -> Sampler:
        """By replays of a graph, between events."""
        return graphs.GraphSampler(self._timed, lambda number, _stream: call(number), sets, pause=pause)

    def beside(self, call: Call) -> Call:
        """On the stream that is measured."""
        import torch

        stream = torch.cuda.ExternalStream(self._timed.stream, device=self.index)

        def on_stream(number: int) -> None:
            with torch.cuda.stream(stream):
                call(number)

        return on_stream
