"""The CPU: memory of this process, calls that return when their work is done."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilec.portable.cores import usable_cores
from tilec.portable.devices.base import Device, Memory, repeat
from tilec.portable.loader import CPU
from tilec.portable.timing import PAUSE, Call, CallSampler, Sampler

_CACHE = Path("/sys/devices/system/cpu/cpu0/cache")


class HostMemory(Memory):
    """Whole pages."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._pages = mmap.mmap(-1, max(size, 1))
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))

    def write(self, data: Any) -> None:
        """As `Memory.write`."""
        ctypes.memmove(self.address, (ctypes.c_char * self.size).from_buffer(data), self.size)

    def read(self, data: Any) -> None:
        """As `Memory.read`."""
        ctypes.memmove((ctypes.c_char * self.size).from_buffer(data), self.address, self.size)

    def fill(self, block: bytes) -> None:
        """In place."""
        repeat(self._pages, block)

    def content(self) -> memoryview:
        """The block itself."""
        return memoryview(self._pages)


class CpuDevice(Device):
    """The cores of this process."""

    type, dlpack, on_host = "cpu", CPU, True

    @property
    def torch(self) -> str:
        """The same."""
        return "cpu"

    def facts(self) -> dict[str, Any]:
        """Name, cores, clock and the last cache, as Linux says."""
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        said = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        return {
            "name": said.get("model name") or said.get("CPU part", "unknown CPU"),
            "driver": None,
            "cores": usable_cores(),
            "clock_khz": _clock_khz(said.get("cpu MHz", "")),
            "cache_bytes": _last_cache(),
        }

    def memory(self, size: int) -> HostMemory:
        """Of this process."""
        return HostMemory(size)

    def shared_memory(self, size: int) -> HostMemory:
        """The same."""
        return HostMemory(size)

    def synchronize(self) -> None:
        """Calls return when their work is done."""

    def enter(self, threads: int) -> None:
        """A single thread stays where it is."""
        if threads == 1:
            os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])

    def options(self, threads: int) -> dict[str, Any]:
        """So many threads."""
        return {"num_workers": threads}

    def sampler(
        self,
        call: Call,
        sets: int = 1,
        *,
        clock: Callable[[], float] = time.perf_counter,
        pause: float = PAUSE,
    ) -> Sampler:
        """By ``clock``."""
        return CallSampler(call, sets, clock=clock)


def _clock_khz(current: str) -> int:
    """The highest clock, where the kernel says it; else the one that it shows now."""
    try:
        return int(Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").read_text())
    except (OSError, ValueError):
        return int(float(current or 0) * 1000)


def _last_cache() -> int:
    """Bytes of the last cache before memory; 0 where it is not said."""
    sizes = [_kilobytes(path) for path in _CACHE.glob("index*/size")]
    return max(sizes, default=0)


def _kilobytes(path: Path) -> int:
    text = path.read_text().strip()
    unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
    return int(text.rstrip("KM")) * unit
