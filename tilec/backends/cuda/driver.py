"""The CUDA device at hand: what its driver says, and the best target for it. Loads nothing but the driver."""

from __future__ import annotations

import ctypes
from functools import lru_cache

from tilec.errors import EnvironmentError_
from tilec.portable.devices.cuda import CudaDevice
from tilec.portable.loader import LaunchError, cuda_driver
from tilec.targets import CUDA_TARGETS, Target, parse_target

#: What TVM calls the family.
KINDS = ("cuda",)
_MULTIPROCESSORS, _MAJOR, _MINOR = 16, 75, 76  # CUdevice_attribute
#: The lowest compute capability that tilec compiles for, times 10.
_FIRST_CAPABILITY = 80


@lru_cache(maxsize=1)
def cuda_devices() -> int:
    """How many CUDA devices the driver has; 0 without a driver."""
    count = ctypes.c_int()
    try:
        cuda_driver()._check("cuDeviceGetCount", ctypes.byref(count))
    except LaunchError:
        return 0
    return count.value


def device_words() -> tuple[str, ...]:
    """Every device with its compute capability and driver: "NVIDIA H200 (9.0), CUDA 12.9"."""
    facts = [CudaDevice(number).facts() for number in range(cuda_devices())]
    return tuple("{name} ({major}.{minor}), {driver}".format(**each) for each in facts)


def device_attribute(number: int, device: int = 0) -> int:
    """A CUdevice_attribute of a device. Raises LaunchError without a driver."""
    driver, value, handle = cuda_driver(), ctypes.c_int(), ctypes.c_int()
    driver._check("cuDeviceGet", ctypes.byref(handle), device)
    driver._check("cuDeviceGetAttribute", ctypes.byref(value), number, handle)
    return value.value


def multiprocessors(device: int = 0) -> int:
    """Of a device."""
    return device_attribute(_MULTIPROCESSORS, device)


def capability(device: int = 0) -> tuple[int, int]:
    """(major, minor) of a device."""
    return device_attribute(_MAJOR, device), device_attribute(_MINOR, device)


@lru_cache(maxsize=1)
def target_here() -> Target:
    """The best target for device 0. Raises EnvironmentError_ without a device, and for a too old one."""
    require_device()
    major, minor = capability()
    for target in sorted(map(parse_target, CUDA_TARGETS), key=lambda each: each.rank, reverse=True):
        if target.gpu is not None and target.gpu.runs_on(10 * major + minor):
            return target
    raise EnvironmentError_(
        f"the CUDA device has compute capability {major}.{minor}, tilec compiles for 8.0 and up",
        remedy="compile for cpu",
    )


def require_device() -> None:
    """Raises EnvironmentError_ without a device."""
    if not cuda_devices():
        raise EnvironmentError_(
            "target cuda needs a CUDA device, and this machine has none",
            remedy='name the architecture, "cuda -arch=sm_90a", or compile for cpu',
        )


def without_made_up(arch: str) -> str:
    """``arch`` of a TVM target; empty for one that TVM makes up where it finds no CUDA."""
    number = arch.removeprefix("sm_")
    return "" if number.isdecimal() and int(number) < _FIRST_CAPABILITY else arch
