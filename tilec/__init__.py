"""tilec: tile kernels in Python plus a manifest become one fat shared library with a stable C ABI."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tilec import families as _families
from tilec import started as _started  # noqa: F401
from tilec.packages import find_aliases, lend

__version__ = "0.1.0"

#: Public names and where they live; each module is loaded at the first use of its name.
_LAZY = {
    "cdiv": ("tilec.language.values.functions.integers", "ceildiv"),
    "AutoTuner": ("tilec.inprocess.search.autotuning", "AutoTuner"),
    "autotune": ("tilec.inprocess.search.autotuning", "autotune"),
    "DataType": ("tilec.language.values.scalars", "dtype"),
    "Fragment": ("tilec.language.values.layouts.layout", "Fragment"),
    "Layout": ("tilec.language.values.layouts.layout", "Layout"),
    "JITFunc": ("tilec.inprocess.jitted", "JITFunc"),
    "JITImpl": ("tilec.inprocess.jitted", "JITImpl"),
    "JITKernel": ("tilec.inprocess.kernel", "JITKernel"),
    "PassConfigKey": ("tilec.language.frontend.pass_configs", "PassConfigKey"),
    "Profiler": ("tilec.inprocess.measuring.profiler", "Profiler"),
    "SwizzleMode": ("tilec.language.tiles.layout_builders", "SwizzleMode"),
    "TensorSupplyType": ("tilec.inprocess.measuring.inputs", "TensorSupplyType"),
    "clear_cache": ("tilec.cache", "clear_cache"),
    "compile": ("tilec.inprocess.jitted", "compile"),
    "disable_cache": ("tilec.inprocess.compilation.store", "disable_cache"),
    "do_bench": ("tilec.inprocess.measuring.bench", "do_bench"),
    "enable_cache": ("tilec.inprocess.compilation.store", "enable_cache"),
    "is_cache_enabled": ("tilec.inprocess.compilation.store", "is_cache_enabled"),
    "jit": ("tilec.inprocess.jitted", "jit"),
    "lazy_jit": ("tilec.inprocess.jitted", "jit"),
    "next_power_of_2": ("tilec.language.values.functions.integers", "next_power_of_2"),
    "par_compile": ("tilec.inprocess.jitted", "par_compile"),
    "load": ("tilec.portable.loader", "load"),
    "set_log_level": ("tilec.env", "set_log_level"),
    "LaunchError": ("tilec.portable.loader", "LaunchError"),
    "LibraryError": ("tilec.portable.loader", "LibraryError"),
}
find_aliases(__name__)
lend("tilec.language.dtypes", "tilec.dtypes")


def _register_families() -> None:
    import tilec.backends  # noqa: F401


_families.provide(_register_families)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        module, attribute = _LAZY[name]
        return getattr(import_module(module), attribute)
    if name in ("dtypes", "language"):
        return import_module(f"tilec.{name}")
    if name.startswith("__"):
        raise AttributeError(f"module tilec has no attribute {name}")
    return import_module("tilec.aliases").attribute(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
