"""The device that kernels are for, as kernel files import it: ``from tilec.carver.arch import driver``.

In process it is the device at hand. A build has none, since one library serves several: there each question
is refused with what to write instead."""

from __future__ import annotations

import ctypes
import platform

from tilec.inprocess.targets import count_multiprocessors, cuda_devices, device_attribute
from tilec.language.device import refuse_in_builds
from tilec.loader import cuda_driver

_SHARED, _SHARED_OPT_IN = 8, 97  # CUdevice_attribute
#: What a block of a CPU kernel may count on: its tiles lie in the second-level cache.
_CPU_SHARED = 256 * 1024


def get_num_sms(device_id: int = 0) -> int:
    """How many multiprocessors the device has; without a GPU, the CPUs of this process."""
    refuse_in_builds("get_num_sms", "pass the number of blocks as a config key or a T.int32 argument")
    return count_multiprocessors(device_id)


def get_shared_memory_per_block(device_id: int = 0) -> int:
    """Bytes of shared memory that every block may have."""
    refuse_in_builds("get_shared_memory_per_block", "choose tiles in the config of each target")
    return device_attribute(_SHARED, device_id) if cuda_devices() else _CPU_SHARED


def get_max_dynamic_shared_size_bytes(device_id: int = 0) -> int:
    """Bytes of shared memory of a block that asks for more."""
    refuse_in_builds("get_max_dynamic_shared_size_bytes", "choose tiles in the config of each target")
    return device_attribute(_SHARED_OPT_IN, device_id) if cuda_devices() else _CPU_SHARED


def get_device_name(device_id: int = 0) -> str:
    """What the driver calls the device; the kind of the CPU without a GPU."""
    refuse_in_builds("get_device_name", "name targets in the manifest")
    if not cuda_devices():
        return platform.machine()
    text, handle, driver = ctypes.create_string_buffer(256), ctypes.c_int(), cuda_driver()
    driver._check("cuDeviceGet", ctypes.byref(handle), device_id)
    driver._check("cuDeviceGetName", text, len(text), handle)
    return text.value.decode()


__all__ = [
    "get_device_name",
    "get_max_dynamic_shared_size_bytes",
    "get_num_sms",
    "get_shared_memory_per_block",
]
