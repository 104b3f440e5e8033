"""How a kernel in process is compiled: what `jit` and `compile` were given, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilec.errors import SourceValueError, UnsupportedError
from tilec.inprocess.targets import resolve_target
from tilec.language.frontend.compile_options import flag_list
from tilec.language.frontend.pass_configs import by_text
from tilec.settings import read_settings
from tilec.targets import Target

#: One road serves them all.
_BACKENDS = (None, "auto", "tvm_ffi", "cython", "nvrtc", "dlpack", "ctypes")
_REFUSED_BACKENDS = ("torch", "cutedsl")


@dataclass(frozen=True)
class Options:
    """``out_idx`` as given, for prim_funcs and factories; ``debug`` a folder for sources or None.
    ``pass_configs`` by the strings of their keys, ``flags`` for the device compiler one by one."""

    target: Target
    out_idx: Any
    verbose: bool
    debug: Path | None
    given: Mapping[str, Any]
    pass_configs: Mapping[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()

    @staticmethod
    def of(given: Mapping[str, Any]) -> Options:
        """The options of a call. Raises ValueError for an unknown backend, and what `resolve_target` does."""
        settings = read_settings()
        _check_backend(given.get("execution_backend") or settings.backend)
        verbose, debug = given.get("verbose"), given.get("debug_root_path")
        return Options(
            resolve_target(given.get("target")),
            given.get("out_idx"),
            settings.verbose if verbose is None else bool(verbose),
            None if debug is None else Path(debug),
            given,
            by_text(given.get("pass_configs")),
            tuple(flag_list(given.get("compile_flags"))),
        )

    @property
    def identity(self) -> dict[str, Any]:
        """What of the options tells kernels apart, beside the target."""
        return {"pass_configs": dict(sorted(self.pass_configs.items())), "compile_flags": self.flags}


def _check_backend(backend: Any) -> None:
    if backend in _REFUSED_BACKENDS:
        raise UnsupportedError(f"execution_backend {backend!r}", remedy="leave it out")
    if backend not in _BACKENDS:
        known = ", ".join(repr(each) for each in _BACKENDS if each)
        raise SourceValueError(f"unknown execution_backend {backend!r}", remedy=f"use one of {known}")
