"""Modules of other compilers that kernel files name and tilec does not offer.

They import, so that a file with an unused branch still loads; using what they hold is an error that names it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, NoReturn

_EMITTERS = "use T.gemm and T.copy, which choose the instructions of each target"
_VENDORS = "compile for cuda or cpu"
EXPLAIN = "use tilec explain"
_SCHEDULES = "list configs in [kernel.tune], or in configs of tilec.autotune"
#: Package -> what to do instead; everything below it that does not exist is not offered.
PACKAGES = {
    "carver": _SCHEDULES,
    "contrib": "use kernel.export_ptx() and kernel.export_library()",
    "cuda": _EMITTERS,
    "cutedsl": _VENDORS,
    "engine": EXPLAIN,
    "intrinsics": _EMITTERS,
    "metal": _VENDORS,
    "quantize": "unpack with >> and & in the kernel",
    "rocm": _VENDORS,
    "tools": EXPLAIN,
    "webgpu": _VENDORS,
}
#: Names of the package `tilec` itself -> what to do instead.
FUNCTIONS = {
    "lower": EXPLAIN,
    "register_cuda_postproc": "change the kernel: its CUDA code is not edited",
    "register_cuda_postproc_callback": "change the kernel: its CUDA code is not edited",
}
#: What kernels take from such modules and `tilec.layout` has.
_OFFERED = ("SwizzleMode", "get_swizzle_layout", "make_mma_swizzle_layout")


class Unoffered:
    """A name that raises `UnsupportedError` when it is called, subscripted or asked for more."""

    def __init__(self, name: str, remedy: str) -> None:
        self._name, self._remedy = name, remedy

    def _refuse(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        from tilec.language.values.places import unsupported

        raise unsupported(self._name, remedy=self._remedy)

    __call__ = __getitem__ = __enter__ = _refuse

    def __exit__(self, *_args: Any) -> None:
        """Never reached: entering raises."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unoffered(f"{self._name}.{name}", self._remedy)

    def __mro_entries__(self, _bases: tuple[object, ...]) -> tuple[type, ...]:
        """Classes may derive from it; they are not used either."""
        return (object,)

    def __repr__(self) -> str:
        return f"<{self._name}, not supported>"


def names_of(module: str, remedy: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module whose other names are not offered."""

    def find(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        if name in _OFFERED:
            return getattr(import_module("tilec.layout"), name)
        fullname = f"{module}.{name}"
        if PathFinder.find_spec(fullname, getattr(sys.modules[module], "__path__", ())) is not None:
            return import_module(fullname)
        return Unoffered(fullname, remedy)

    return find


class _Finder:
    """Finds modules below `PACKAGES` that no file has."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A module without content."""
        root, _, rest = fullname.partition(".")
        if root != "tilec" or rest.partition(".")[0] not in PACKAGES:
            return None
        return ModuleSpec(fullname, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """An ordinary one."""

    def exec_module(self, module: ModuleType) -> None:
        """Its names are not offered."""
        package = module.__name__.split(".")[1]
        vars(module)["__getattr__"] = names_of(module.__name__, PACKAGES[package])


def install() -> None:
    """Makes the modules importable, behind all that exist."""
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.append(_Finder())
