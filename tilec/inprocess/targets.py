"""What kernels in process are compiled for: the spellings of a target, and what this machine has."""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from tilec.errors import EnvironmentError_, InputError, UnsupportedError
from tilec.loader import LaunchError, cuda_driver
from tilec.settings import read_settings
from tilec.targets import CUDA_TARGETS, Target, native_target, parse_target

_CPU_KINDS = ("c", "cpu", "llvm", "native")
_OTHER_VENDORS = ("hip", "rocm", "metal", "webgpu", "cutedsl", "vulkan", "opencl")
_MAJOR, _MINOR = 75, 76  # CUdevice_attribute


def resolve_target(spec: Any = None) -> Target:
    """The target of ``spec``: None (TILEC_TARGET, else "auto"), "auto" (the first CUDA device, else this
    CPU), "cuda", "c", "cpu", "llvm", "native", with options such as "cuda -arch=sm_90a", a dict with "kind"
    and "arch", a TVM Target, or a name of tilec's.

    Raises InputError, `UnsupportedError` for other vendors, EnvironmentError_ for "cuda" without a device."""
    if isinstance(spec, Target):
        return spec
    kind, arch = _spelled(read_settings().target if spec is None else spec)
    if kind in _OTHER_VENDORS:
        raise UnsupportedError(f"target {kind}", remedy="compile for cuda or cpu")
    if kind == "auto":
        return _cuda_here() if cuda_devices() else native_target()
    if kind == "cuda":
        return _cuda_target(arch) if arch else _require_cuda()
    return native_target() if kind in _CPU_KINDS else parse_target(kind)


def _spelled(spec: Any) -> tuple[str, str]:
    """(kind, arch); arch is empty where none is named."""
    if isinstance(spec, str) and spec.lstrip().startswith("{"):
        spec = json.loads(spec)
    if isinstance(spec, Mapping):
        return str(spec.get("kind", "auto")), str(spec.get("arch", ""))
    if not isinstance(spec, str) and hasattr(spec, "kind"):
        return str(getattr(spec.kind, "name", spec.kind)), str(getattr(spec, "arch", "") or "")
    if not isinstance(spec, str):
        raise InputError(f"{spec!r} is no target", remedy='write "cuda", "cpu" or a name such as "sm_90a"')
    kind, *options = spec.split()
    found = re.search(r"-arch[= ](\S+)", " ".join(options))
    return kind, found.group(1) if found else ""


def _cuda_target(arch: str) -> Target:
    """ "sm_90" means the features of that device too."""
    return parse_target("sm_90a" if arch in ("sm_90", "90", "90a") else arch)


def _require_cuda() -> Target:
    if cuda_devices():
        return _cuda_here()
    raise EnvironmentError_(
        "target cuda needs a CUDA device, and this machine has none",
        remedy='name the architecture, "cuda -arch=sm_90a", or compile for cpu',
    )


@lru_cache(maxsize=1)
def cuda_devices() -> int:
    """How many CUDA devices the driver has; 0 without a driver."""
    count = ctypes.c_int()
    try:
        cuda_driver()._check("cuDeviceGetCount", ctypes.byref(count))
    except LaunchError:
        return 0
    return count.value


@lru_cache(maxsize=1)
def _cuda_here() -> Target:
    """The best target for device 0."""
    capability = 10 * device_attribute(_MAJOR) + device_attribute(_MINOR)
    for target in sorted(map(parse_target, CUDA_TARGETS), key=lambda each: each.rank, reverse=True):
        gpu = target.gpu
        assert gpu is not None
        same_major = gpu.capability // 10 == capability // 10
        runs = gpu.is_ptx or (same_major and not gpu.exact) or gpu.capability == capability
        if runs and gpu.capability <= capability:
            return target
    raise EnvironmentError_(
        f"the CUDA device has compute capability {capability / 10}, tilec compiles for 8.0 and up",
        remedy="compile for cpu",
    )


def device_attribute(number: int, device: int = 0) -> int:
    """A CUdevice_attribute of a device. Raises LaunchError without a driver."""
    driver, value, handle = cuda_driver(), ctypes.c_int(), ctypes.c_int()
    driver._check("cuDeviceGet", ctypes.byref(handle), device)
    driver._check("cuDeviceGetAttribute", ctypes.byref(value), number, handle)
    return value.value
