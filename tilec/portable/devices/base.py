"""What a kind of devices offers to those who verify and measure on it: memory, facts, a clock."""

from __future__ import annotations

import mmap
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from tilec.portable.timing import PAUSE, Call, CallSampler, Sampler


class Memory(ABC):
    """A block of ``size`` bytes at ``address``, a multiple of 64, freed with this object."""

    address: int
    size: int

    def data_ptr(self) -> int:
        """The address; where a driver knows memory by objects, that of the object."""
        return self.address

    @abstractmethod
    def write(self, data: Any) -> None:
        """Fills the block from ``data``, which has its size and the buffer protocol, writable."""

    @abstractmethod
    def read(self, data: Any) -> None:
        """Copies the block into ``data`` when the device has done all work that was launched before. Raises
        LaunchError for an error of that work."""

    def fill(self, block: bytes) -> None:
        """Fills it with ``block`` over and over."""
        staging = mmap.mmap(-1, self.size)
        repeat(staging, block)
        self.write(staging)

    def content(self) -> memoryview:
        """The bytes, as `read`."""
        staging = bytearray(self.size)
        self.read(staging)
        return memoryview(staging)


class DeviceArray:
    """What the loader takes for a tensor of torch: memory of a device from ``offset`` bytes on. ``strides``
    are in elements of ``itemsize`` bytes; ``dtype`` is the name that kernels give their type."""

    def __init__(
        self,
        memory: Memory,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: str,
        itemsize: int,
        device: Device,
        offset: int = 0,
    ) -> None:
        self.shape, self.dtype, self.device = shape, dtype, device
        self._memory, self._strides, self._itemsize, self._offset = memory, strides, itemsize, offset

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._memory.address + self._offset

    def stride(self) -> tuple[int, ...]:
        """Strides in elements."""
        return self._strides

    def untyped_storage(self) -> Memory:
        """The memory."""
        return self._memory

    def storage_offset(self) -> int:
        """Elements of the memory in front of the first one."""
        return self._offset // self._itemsize

    def element_size(self) -> int:
        """Bytes of an element."""
        return self._itemsize

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.dlpack, self.device.index


class Device(ABC):
    """Device number ``index`` of a kind, there or not. ``type`` is the kind's name, ``dlpack`` its number in
    dlpack.h; ``on_host``: arrays of this process are where it works. Whatever touches a device that is not
    there raises LaunchError."""

    type: str
    dlpack: int
    on_host: bool = False

    def __init__(self, index: int = 0) -> None:
        self.index = index

    def __str__(self) -> str:
        return self.type if self.on_host else f"{self.type}:{self.index}"

    @property
    def torch(self) -> str:
        """What torch calls the device; empty where it has no tensors there."""
        return ""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Its ``name``, ``driver`` (None without one) and the numbers that its limits follow from."""

    @abstractmethod
    def memory(self, size: int) -> Memory:
        """A block of its memory."""

    @abstractmethod
    def shared_memory(self, size: int) -> Memory:
        """A block that this process and the devices of the kind see at one address."""

    @abstractmethod
    def synchronize(self) -> None:
        """Waits for all work. Raises LaunchError for an error of that work."""

    @abstractmethod
    def enter(self, threads: int) -> None:
        """Prepares this thread, and a CPU for ``threads`` threads (0: all), for calls of `options`."""

    def options(self, threads: int) -> dict[str, Any]:
        """What `tilec.portable.loader.Kernel.prepare` takes for calls that `sampler` measures."""
        return {}

    def sampler(
        self,
        call: Call,
        sets: int = 1,
        *,
        clock: Callable[[], float] = time.perf_counter,
        pause: float = PAUSE,
    ) -> Sampler:
        """What times ``call`` on ``sets`` input sets. ``clock``: of work of this process; ``pause``: seconds
        of rest before each sample, where the device has a clock of its own."""
        return CallSampler(lambda number: (call(number), self.synchronize()), sets, clock=clock)

    def beside(self, call: Call) -> Call:
        """``call``, which is work of torch, so that `sampler` times it."""
        return call


def repeat(memory: mmap.mmap, block: bytes) -> None:
    """Writes ``block`` over and over."""
    memory.seek(0)
    left, chunk = len(memory), block * max(1, (1 << 20) // len(block))
    while left > 0:
        memory.write(chunk[:left])
        left -= len(chunk)
