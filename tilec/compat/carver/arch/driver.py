"""The device that kernels are for, as kernel files import it: ``from . import driver``.

In process it is the device at hand. A build has none, since one library serves several: there the number of
multiprocessors is a value of the launch, and other questions are refused with what to write instead."""

from __future__ import annotations

import ctypes
import platform
from typing import Any

from tilec.backends.cuda.driver import cuda_devices, device_attribute
from tilec.inprocess.targets import count_multiprocessors
from tilec.language.tiles.device import num_sms_at_launch, refuse_in_builds
from tilec.language.values.kernel.session import for_a_build
from tilec.portable.loader import cuda_driver

_SHARED, _SHARED_OPT_IN = 8, 97  # CUdevice_attribute
#: What a block of a CPU kernel may count on: its tiles lie in the second-level cache.
_CPU_SHARED = 256 * 1024


def get_num_sms(device_id: int = 0) -> Any:
    """How many multiprocessors the device has; without a GPU, the CPUs of this process. A kernel that is
    built for a library gets a value of the launch: the multiprocessors of the call's device, on a CPU the
    workers of the call; it may stand in grids, loops, indices and sizes of `T.alloc_global`."""
    return num_sms_at_launch() if for_a_build() else count_multiprocessors(device_id)


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
