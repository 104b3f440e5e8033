"""What kernels in process are compiled for: the spellings of a target, and what this machine has."""

from __future__ import annotations

import ctypes
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tilec.errors import EnvironmentError_, InputError, UnsupportedError
from tilec.language.tiles.device import provide_multiprocessors
from tilec.portable.loader import LaunchError, cuda_driver
from tilec.settings import read_settings
from tilec.targets import CPU_LEVELS, CUDA_TARGETS, Target, native_target, parse_target

_CPU_KINDS = ("c", "cpu", "llvm", "native")
_OTHER_VENDORS = ("hip", "rocm", "metal", "webgpu", "cutedsl", "vulkan", "opencl")
#: The lowest compute capability that tilec compiles for, times 10.
_FIRST_CAPABILITY = 80
#: CPUs as LLVM names them; what none of tilec's features says of them is not used.
_CPU_NAMES = {
    "nehalem": "x86-64-v2",
    "haswell": "x86-64-v3",
    "skylake": "x86-64-v3",
    "znver1": "x86-64-v3",
    "znver2": "x86-64-v3",
    "znver3": "x86-64-v3",
    "skylake-avx512": "x86-64-v4",
    "cascadelake": "x86-64-v4+vnni",
    "icelake-server": "x86-64-v4+vnni",
    "cooperlake": "x86-64-v4+vnni+avx512bf16",
    "sapphirerapids": "x86-64-v4+vnni+avx512bf16",
    "znver4": "x86-64-v4+vnni+avx512bf16",
    "znver5": "x86-64-v4+vnni+avx512bf16",
    "neoverse-n1": "aarch64+dotprod",
}
_MULTIPROCESSORS, _MAJOR, _MINOR = 16, 75, 76  # CUdevice_attribute


def resolve_target(spec: Any = None) -> Target:
    """The target of ``spec``: None (TILEC_TARGET, else "auto"), "auto" (the first CUDA device, else this
    CPU), "cuda", "c", "cpu", "llvm", "native", with options such as "cuda -arch=sm_90a" and
    "llvm -mcpu=znver4", a dict with "kind", "arch" and "mcpu", a TVM Target, or a name of tilec's.

    Raises InputError, `UnsupportedError` for other vendors, EnvironmentError_ for "cuda" without a device."""
    if isinstance(spec, Target):
        return spec
    named = _spelled(read_settings().target if spec is None else spec)
    if named.kind in _OTHER_VENDORS:
        raise UnsupportedError(f"target {named.kind}", remedy="compile for cuda or cpu")
    if named.kind == "auto":
        return _cuda_here() if cuda_devices() else native_target()
    if named.kind == "cuda":
        return _cuda_target(named.arch) if named.arch else _require_cuda()
    if named.kind in _CPU_KINDS:
        return _cpu_target(named.mcpu) if named.mcpu else native_target()
    return _cuda_target(named.kind)


@dataclass(frozen=True)
class _Named:
    """What a spelling says; empty where it does not."""

    kind: str
    arch: str = ""
    mcpu: str = ""


def _spelled(spec: Any) -> _Named:
    if isinstance(spec, str) and spec.lstrip().startswith("{"):
        spec = json.loads(spec)
    if isinstance(spec, Mapping):
        return _Named(*(str(spec.get(key) or "") for key in ("kind", "arch", "mcpu")))
    if not isinstance(spec, str) and hasattr(spec, "kind"):
        return _of_tvm(spec)
    if not isinstance(spec, str) or not spec.strip():
        raise InputError(f"{spec!r} is no target", remedy='write "cuda", "cpu" or a name such as "sm_90a"')
    kind, *options = spec.split()
    found = {name: re.search(rf"-{name}[= ](\S+)", " ".join(options)) for name in ("arch", "mcpu")}
    return _Named(kind, *(match.group(1) if match else "" for match in found.values()))


def _of_tvm(target: Any) -> _Named:
    """A TVM Target; an architecture that it makes up where it finds no CUDA names none."""
    options = {**getattr(target, "attrs", {})}
    arch = str(options.get("arch") or getattr(target, "arch", "") or "")
    made_up = arch.removeprefix("sm_").isdecimal() and int(arch.removeprefix("sm_")) < _FIRST_CAPABILITY
    mcpu = str(options.get("mcpu") or "")
    return _Named(str(getattr(target.kind, "name", target.kind)), "" if made_up else arch, mcpu)


def _cuda_target(arch: str) -> Target:
    """ "sm_90" means the features of that device too."""
    return parse_target("sm_90a" if arch in ("sm_90", "90", "90a") else arch)


def _cpu_target(mcpu: str) -> Target:
    """The target of a CPU as LLVM names it. Raises InputError for one that is not in the table."""
    if mcpu in ("native", "host", "generic"):
        return native_target()
    if mcpu in _CPU_NAMES:
        return parse_target(_CPU_NAMES[mcpu])
    if mcpu.startswith(CPU_LEVELS):
        return parse_target(mcpu)
    raise InputError(
        f"unknown CPU {mcpu!r}", remedy=f'write "native", {", ".join(CPU_LEVELS)}, or {", ".join(_CPU_NAMES)}'
    )


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


def device_capability(target: Any = None, device: int = 0) -> tuple[int, int]:
    """(major, minor) of the GPU that ``target`` names; of "cuda", "auto" or None, of the device at hand.
    Raises EnvironmentError_ where there is none, InputError for a target that is no GPU."""
    named = None if target is None else _spelled(target) if not isinstance(target, Target) else target
    asked = isinstance(named, _Named) and named.kind in ("auto", "cuda") and not named.arch
    if named is None or asked:
        _require_cuda()
        return device_attribute(_MAJOR, device), device_attribute(_MINOR, device)
    gpu = resolve_target(target).gpu
    if gpu is None:
        raise InputError(f"target {target} is no GPU", remedy='name one: "cuda" or "sm_90a"')
    return divmod(gpu.capability, 10)


def count_multiprocessors(device: int = 0) -> int:
    """The multiprocessors of a CUDA device; without a GPU, the CPUs of this process."""
    return device_attribute(_MULTIPROCESSORS, device) if cuda_devices() else len(os.sched_getaffinity(0))


provide_multiprocessors(count_multiprocessors)
