"""``tilec.testing``: what test files of kernels import. Needs pytest."""

from __future__ import annotations

import importlib.util
import inspect
import operator
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tilec.backends.cuda.driver import cuda_devices, device_attribute
from tilec.inprocess.measuring.inputs import torch_assert_close

_MAJOR, _MINOR = 75, 76  # CUdevice_attribute
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "lt": operator.lt,
    "eq": operator.eq,
}


def main() -> None:
    """Runs the tests of the calling file and exits with pytest's code."""
    file = inspect.stack()[1].filename
    sys.exit(pytest.main([file, *sys.argv[1:]]))


def set_random_seed(seed: int = 42) -> None:
    """Seeds Python, and NumPy and torch where they are loaded."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def requires_cuda(test: Any) -> Any:
    """Skips a test where there is no CUDA device."""
    return pytest.mark.skipif(cuda_devices() == 0, reason="there is no CUDA device")(test)


def requires_llvm(test: Any) -> Any:
    """Every machine that tilec runs on has its CPU."""
    return test


def requires_rocm(test: Any) -> Any:
    """Skips a test: tilec makes no code for AMD GPUs."""
    return pytest.mark.skip(reason="tilec makes no code for AMD GPUs")(test)


def requires_metal(test: Any) -> Any:
    """Skips a test: tilec makes no code for Metal."""
    return pytest.mark.skip(reason="tilec makes no code for Metal")(test)


def requires_cpu(test: Any) -> Any:
    """Every machine that tilec runs on has its CPU."""
    return test


def requires_tensorcore(test: Any) -> Any:
    """Skips a test where there is no CUDA device with tensor cores."""
    return requires_cuda_compute_version(7)(test)


def requires_package(*names: str) -> Callable[[Any], Any]:
    """Skips a test where a package is missing."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")


def requires_cuda_compute_version(major: int, minor: int = 0, mode: str = "ge") -> Callable[[Any], Any]:
    """Skips a test unless the first device's compute capability compares so. Raises KeyError for other modes
    than ge, gt, le, lt and eq."""
    compare = _COMPARE[mode]
    there = cuda_devices() > 0
    fits = there and compare((device_attribute(_MAJOR), device_attribute(_MINOR)), (major, minor))
    return pytest.mark.skipif(not fits, reason=f"needs a compute capability {mode} {major}.{minor}")


def _requires(mode: str) -> Callable[..., Callable[[Any], Any]]:
    return lambda major, minor=0: requires_cuda_compute_version(major, minor, mode)


requires_cuda_compute_version_ge = _requires("ge")
requires_cuda_compute_version_gt = _requires("gt")
requires_cuda_compute_version_le = _requires("le")
requires_cuda_compute_version_lt = _requires("lt")
requires_cuda_compute_version_eq = _requires("eq")


def process_func(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls the function here."""
    return func(*args, **kwargs)


regression = process_func
requires_gpu = requires_cudagraph = requires_nvcc = requires_cuda


def __getattr__(name: str) -> Any:
    """Other marks skip: ``requires_webgpu`` and the like ask for what tilec makes no code for."""
    if not name.startswith("requires_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    skip = pytest.mark.skip(reason=f"tilec makes no code for {name.removeprefix('requires_')}")

    def mark(*args: Any, **kwargs: Any) -> Any:
        alone = len(args) == 1 and callable(args[0]) and not kwargs
        return skip(args[0]) if alone else skip

    return mark


__all__ = [
    "main",
    "process_func",
    "regression",
    "requires_cpu",
    "requires_cuda",
    "requires_cuda_compute_version",
    "requires_cuda_compute_version_eq",
    "requires_cuda_compute_version_ge",
    "requires_cuda_compute_version_gt",
    "requires_cuda_compute_version_le",
    "requires_cuda_compute_version_lt",
    "requires_cudagraph",
    "requires_gpu",
    "requires_llvm",
    "requires_metal",
    "requires_nvcc",
    "requires_package",
    "requires_rocm",
    "requires_tensorcore",
    "set_random_seed",
    "torch_assert_close",
]
