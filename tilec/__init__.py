"""tilec: tile kernels in Python plus a manifest become one fat shared library with a stable C ABI."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tilec import moved, unoffered
from tilec.unoffered import FUNCTIONS, PACKAGES, Unoffered

__version__ = "0.1.0"

#: Public names and where they live; each module is loaded at the first use of its name.
_LAZY = {
    "cdiv": ("tilec.language.values.integers", "ceildiv"),
    "AutoTuner": ("tilec.inprocess.autotuning", "AutoTuner"),
    "autotune": ("tilec.inprocess.autotuning", "autotune"),
    "DataType": ("tilec.language.values.scalars", "dtype"),
    "Fragment": ("tilec.layout", "Fragment"),
    "Layout": ("tilec.layout", "Layout"),
    "JITFunc": ("tilec.inprocess.jitted", "JITFunc"),
    "JITImpl": ("tilec.inprocess.jitted", "JITImpl"),
    "JITKernel": ("tilec.inprocess.kernel", "JITKernel"),
    "PassConfigKey": ("tilec.language.frontend.pass_configs", "PassConfigKey"),
    "Profiler": ("tilec.inprocess.profiler", "Profiler"),
    "SwizzleMode": ("tilec.layout", "SwizzleMode"),
    "TensorSupplyType": ("tilec.inprocess.inputs", "TensorSupplyType"),
    "clear_cache": ("tilec.env", "clear_cache"),
    "compile": ("tilec.inprocess.jitted", "compile"),
    "disable_cache": ("tilec.inprocess.store", "disable_cache"),
    "do_bench": ("tilec.inprocess.bench", "do_bench"),
    "enable_cache": ("tilec.inprocess.store", "enable_cache"),
    "is_cache_enabled": ("tilec.inprocess.store", "is_cache_enabled"),
    "jit": ("tilec.inprocess.jitted", "jit"),
    "lazy_jit": ("tilec.inprocess.jitted", "jit"),
    "next_power_of_2": ("tilec.language.values.integers", "next_power_of_2"),
    "par_compile": ("tilec.inprocess.jitted", "par_compile"),
    "load": ("tilec.portable.loader", "load"),
    "set_log_level": ("tilec.env", "set_log_level"),
    "LaunchError": ("tilec.portable.loader", "LaunchError"),
    "LibraryError": ("tilec.portable.loader", "LibraryError"),
}
#: Modules that are attributes after ``import tilec`` alone.
_MODULES = (
    "autotuner",
    "carver",
    "dtypes",
    "env",
    "language",
    "layout",
    "math",
    "profiler",
    "testing",
    "tileop",
    "transform",
    "tvm",
    "utils",
)
unoffered.install()
moved.install()


def __getattr__(name: str) -> Any:
    if name in _MODULES or name in PACKAGES:
        return import_module(f"tilec.{name}")
    if name in FUNCTIONS:
        return Unoffered(f"tilec.{name}", FUNCTIONS[name])
    if name not in _LAZY:
        raise AttributeError(f"module tilec has no attribute {name}")
    module, attribute = _LAZY[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
