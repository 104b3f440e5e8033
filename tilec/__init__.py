"""tilec: tile kernels in Python plus a manifest become one fat shared library with a stable C ABI."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

#: Public names and where they live; each module is loaded at the first use of its name.
_LAZY = {
    "cdiv": ("tilec.language.integers", "ceildiv"),
    "jit": ("tilec.language.jitted", "jit"),
    "lazy_jit": ("tilec.language.jitted", "jit"),
    "next_power_of_2": ("tilec.language.integers", "next_power_of_2"),
    "load": ("tilec.loader", "load"),
    "LaunchError": ("tilec.loader", "LaunchError"),
    "LibraryError": ("tilec.loader", "LibraryError"),
}


def __getattr__(name: str) -> Any:
    if name == "layout":
        return import_module("tilec.layout")
    if name not in _LAZY:
        raise AttributeError(f"module tilec has no attribute {name}")
    module, attribute = _LAZY[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
