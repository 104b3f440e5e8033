"""What kernel files ask about the device that they are compiled for: ``from . import nvcc``.

Answers are those of a target that is named, else of the device at hand, asked of its driver; of no device and
no target they are errors, as they are while a library is built for several targets."""

from __future__ import annotations

from typing import Any

from tilec.language.tiles.device import refuse_in_builds
from tilec.packages import names_of_others

from ..carver.arch.capability import device_capability

_BFLOAT16, _FLOAT8, _HOPPER = (8, 0), (8, 9), (9, 0)
_TENSOR_CORES, _HALF, _INT8 = (7, 0), (5, 3), (6, 1)


def get_target_compute_version(target: Any = None) -> str:
    """The compute capability, "9.0", of ``target`` (as `tilec.jit` takes it); without one, of the device.
    Raises EnvironmentError_ where there is none, InputError for a target that is no GPU."""
    refuse_in_builds("get_target_compute_version", "choose by the config of each target")
    major, minor = device_capability(target)
    return f"{major}.{minor}"


def parse_compute_version(compute_version: str) -> tuple[int, int]:
    """("9.0") -> (9, 0). Raises ValueError for other texts."""
    major, _, minor = str(compute_version).partition(".")
    return int(major), int(minor or 0)


def get_target_arch(compute_version: Any) -> str:
    """("9.0") -> "90"; of Hopper and behind it with the features of that chip alone: "90a"."""
    major, minor = _version(compute_version)
    return f"{major}{minor}{'a' if (major, minor) >= _HOPPER else ''}"


def get_cuda_version(cuda_path: str | None = None) -> tuple[int, int]:
    """(major, minor) of the CUDA compiler that kernels are compiled with. EnvironmentError_ without one."""
    from tilec.backends.cuda.codegen.compilers import find_compiler

    return find_compiler().version


def have_fp16(compute_version: Any) -> bool:
    """Whether the device computes with float16."""
    return _version(compute_version) >= _HALF


def have_int8(compute_version: Any) -> bool:
    """Whether the device has products of 8-bit integers (dp4a)."""
    return _version(compute_version) >= _INT8


def have_tensorcore(compute_version: Any = None, target: Any = None) -> bool:
    """Whether the device has tensor cores."""
    return _asked(compute_version, target) >= _TENSOR_CORES


def have_bf16(compute_version: Any) -> bool:
    """Whether the device computes with bfloat16."""
    return _version(compute_version) >= _BFLOAT16


def have_fp8(compute_version: Any) -> bool:
    """Whether the device computes with 8-bit floats."""
    return _version(compute_version) >= _FLOAT8


def have_tma(target: Any = None) -> bool:
    """Whether the device copies tiles by TMA."""
    return device_capability(target) >= _HOPPER


def is_hopper(target: Any = None) -> bool:
    """Whether the device is of compute capability 9.0."""
    return device_capability(target) == _HOPPER


def have_pdl(target: Any = None) -> bool:
    """Whether launches may begin before the one in front has ended."""
    return device_capability(target) >= _HOPPER


def have_cudagraph() -> bool:
    """Whether launches can be recorded in graphs: on every device that tilec compiles for."""
    return True


def _asked(compute_version: Any, target: Any) -> tuple[int, int]:
    return device_capability(target) if compute_version is None else _version(compute_version)


def _version(compute_version: Any) -> tuple[int, int]:
    if isinstance(compute_version, (tuple, list)):
        major, minor = compute_version
        return int(major), int(minor)
    return parse_compute_version(compute_version)


__all__ = [
    "get_cuda_version",
    "get_target_arch",
    "get_target_compute_version",
    "have_bf16",
    "have_cudagraph",
    "have_fp16",
    "have_fp8",
    "have_int8",
    "have_pdl",
    "have_tensorcore",
    "have_tma",
    "is_hopper",
    "parse_compute_version",
]

__getattr__ = names_of_others(__name__)
