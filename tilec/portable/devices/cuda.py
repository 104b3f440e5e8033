"""NVIDIA GPUs by the driver alone; torch where its work is measured beside."""

from __future__ import annotations

import ctypes
from typing import Any

from tilec.portable.devices.gpu import GpuDevice
from tilec.portable.loader import CUDA, GpuDriver, cuda_driver

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


class CudaDevice(GpuDevice):
    """Through libcuda.so.1."""

    type, dlpack = "cuda", CUDA

    @property
    def driver(self) -> GpuDriver:
        """CUDA's."""
        return cuda_driver()

    @property
    def torch(self) -> str:
        """The same."""
        return str(self)

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
