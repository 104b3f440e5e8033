"""What a device is: name, driver, and the numbers that its limits follow from."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from tilec.portable.loader import cuda_driver
from tilec.portable.runner.tensors import Device

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
_CACHE = Path("/sys/devices/system/cpu/cpu0/cache")


def describe(device: Device) -> dict[str, Any]:
    """Name, driver and numbers of a device. Raises LaunchError for a GPU that is not there."""
    return _describe_cuda(device.index) if device.type == "cuda" else _describe_cpu()


def _describe_cuda(number: int) -> dict[str, Any]:
    driver, handle, version = cuda_driver(), ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(100)
    driver.call(number, "cuDeviceGet", ctypes.byref(handle), number)
    driver.call(number, "cuDeviceGetName", name, len(name), handle)
    driver.call(number, "cuDriverGetVersion", ctypes.byref(version))
    facts: dict[str, Any] = {
        "name": name.value.decode(),
        "driver": f"CUDA {version.value // 1000}.{version.value % 1000 // 10}",
    }
    for key, attribute in _ATTRIBUTES.items():
        value = ctypes.c_int()
        driver.call(number, "cuDeviceGetAttribute", ctypes.byref(value), attribute, handle)
        facts[key] = value.value
    return facts


def _describe_cpu() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return {
        "name": facts.get("model name") or facts.get("CPU part", "unknown CPU"),
        "driver": None,
        "cores": len(os.sched_getaffinity(0)),
        "clock_khz": _clock_khz(facts.get("cpu MHz", "")),
        "cache_bytes": _last_cache(),
    }


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
