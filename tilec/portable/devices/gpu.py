"""What devices of NVIDIA's and AMD's drivers share: memory, waiting, times by graphs of calls."""

from __future__ import annotations

import ctypes
import time
from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

from tilec.portable import graphs
from tilec.portable.devices.base import Device, Memory
from tilec.portable.loader import DeviceMemory, GpuDriver, ManagedMemory
from tilec.portable.timing import PAUSE, Call, Sampler


class GpuMemory(DeviceMemory, Memory):
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
        self._driver.call(self._device, "cuCtxSynchronize")
        ctypes.memmove((ctypes.c_char * self.size).from_buffer(data), self.address, self.size)


class GpuDevice(Device):
    """Times by graphs of calls on a stream of its own."""

    @property
    @abstractmethod
    def driver(self) -> GpuDriver:
        """What all calls go through. Raises LaunchError where there is none."""

    @cached_property
    def _timed(self) -> graphs.Device:
        return graphs.Device(self.index, self.driver)

    def memory(self, size: int) -> GpuMemory:
        """At a multiple of 256 bytes."""
        return GpuMemory(self.index, size, self.driver)

    def shared_memory(self, size: int) -> Memory:
        """Managed memory."""
        return _SharedMemory(size, self.index, self.driver)

    def synchronize(self) -> None:
        """Waits for the device."""
        self.driver.call(self.index, "cuCtxSynchronize")

    def enter(self, threads: int) -> None:
        """Makes the device the current one: no call has to change it."""
        self.driver.enter(self.index)

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
        """On the stream that is measured; torch calls devices of AMD's those of CUDA, too."""
        import torch

        stream = torch.cuda.ExternalStream(self._timed.stream, device=self.index)

        def on_stream(number: int) -> None:
            with torch.cuda.stream(stream):
                call(number)

        return on_stream
