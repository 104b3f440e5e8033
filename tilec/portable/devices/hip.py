"""AMD GPUs by libamdhip64 alone; a torch for ROCm where its work is measured beside."""

from __future__ import annotations

import ctypes
from typing import Any

from tilec.portable.devices.gpu import GpuDevice
from tilec.portable.loader import ROCM, GpuDriver, hip_driver

#: What the largest cache in front of memory holds (the Infinity Cache of an MI300X): HIP does not tell.
CACHE_BYTES = 256 << 20


class HipDevice(GpuDevice):
    """Through libamdhip64.so.7, .6 or .5."""

    type, dlpack = "hip", ROCM

    @property
    def driver(self) -> GpuDriver:
        """HIP."""
        return hip_driver()

    @property
    def torch(self) -> str:
        """Where torch is built for ROCm, CUDA's name."""
        import torch

        return f"cuda:{self.index}" if torch.version.hip else ""

    def facts(self) -> dict[str, Any]:
        """With ``arch``, the name of the target whose code it runs."""
        name, arch, units = hip_driver().properties(self.index)
        version = ctypes.c_int()
        hip_driver().call(self.index, "hipDriverGetVersion", ctypes.byref(version))
        return {
            "name": name,
            "driver": f"HIP {version.value // 10_000_000}.{version.value // 100_000 % 100}",
            "arch": arch,
            "multiprocessors": units,
            "cache_bytes": CACHE_BYTES,
        }
