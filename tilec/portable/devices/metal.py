"""Apple GPUs by Metal through the Objective-C run time alone."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

from tilec.portable.devices.base import Device, Memory
from tilec.portable.graphs import REPLAY_SECONDS
from tilec.portable.loader import METAL, LaunchError, MetalBuffer, metal
from tilec.portable.timing import PAUSE, Call, CallSampler, Sampler

#: What the largest cache in front of memory holds (that of an M1 Ultra's system): Metal does not tell.
CACHE_BYTES = 96 << 20
#: Cores that persistent launches count on, as METAL_CORES of runtime_c/src/devices/metal/metal.h.
CORES = 16
#: MTLGPUFamilyApple7 and MTLGPUFamilyMetal3: both run code of the target.
_FAMILIES, _TARGET = (1007, 5001), "metal3"


class MetalMemory(MetalBuffer, Memory):
    """A buffer that both processors see."""

    def write(self, data: Any) -> None:
        """As `Memory.write`."""
        ctypes.memmove(self.contents, (ctypes.c_char * self.size).from_buffer(data), self.size)

    def read(self, data: Any) -> None:
        """As `Memory.read`."""
        metal().finish()
        ctypes.memmove((ctypes.c_char * self.size).from_buffer(data), self.contents, self.size)


class MetalDevice(Device):
    """The GPU of the system, number 0. Times by the clock of the host, from the first of many calls that are
    queued to the end of the last one."""

    type, dlpack = "metal", METAL

    def facts(self) -> dict[str, Any]:
        """With ``arch``, the name of the target whose code it runs."""
        with metal().pool():
            name = metal().text(metal().device, "name")
        return {
            "name": name,
            "driver": None,
            "arch": _TARGET if all(map(self._is_of, _FAMILIES)) else "",
            "multiprocessors": CORES,
            "cache_bytes": CACHE_BYTES,
        }

    def memory(self, size: int) -> MetalMemory:
        """A buffer of its own."""
        return MetalMemory(self.index, size)

    def shared_memory(self, size: int) -> Memory:
        """There is none: kernels get buffers, no addresses."""
        raise LaunchError(1, "TILEC_ERR_ARGUMENT", "kernels that read at addresses do not run on Apple GPUs")

    def synchronize(self) -> None:
        """Waits for the queue that is measured."""
        metal().finish()

    def enter(self, threads: int) -> None:
        """Nothing is current here."""

    def options(self, threads: int) -> dict[str, Any]:
        """The queue that is measured."""
        return {"stream": metal().queue}

    def sampler(
        self,
        call: Call,
        sets: int = 1,
        *,
        clock: Callable[[], float] = time.perf_counter,
        pause: float = PAUSE,
    ) -> Sampler:
        """By the host's clock."""
        return CallSampler(call, sets, shortest=REPLAY_SECONDS, clock=clock, finish=self.synchronize)

    def _is_of(self, family: int) -> bool:
        found = metal().tell(metal().device, "supportsFamily:", ctypes.c_long(family), result=ctypes.c_byte)
        return bool(found)
