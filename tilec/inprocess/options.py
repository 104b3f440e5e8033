"""How a kernel in process is compiled: what `jit` and `compile` were given, checked once."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tilec.errors import SourceValueError, UnsupportedError
from tilec.inprocess.pass_configs import PassConfigKey
from tilec.inprocess.targets import resolve_target
from tilec.settings import read_settings
from tilec.targets import Target

#: One road serves them all.
_BACKENDS = (None, "auto", "tvm_ffi", "cython", "nvrtc", "dlpack", "ctypes")
_REFUSED_BACKENDS = ("torch", "cutedsl")


@dataclass(frozen=True)
class Options:
    """``out_idx`` as given, for prim_funcs and factories; ``debug`` a folder for sources or None."""

    target: Target
    out_idx: Any
    verbose: bool
    debug: Path | None
    given: Mapping[str, Any]

    @staticmethod
    def of(given: Mapping[str, Any]) -> Options:
        """The options of a call. Raises ValueError for an unknown backend, and what `resolve_target` does."""
        settings = read_settings()
        _check_backend(given.get("execution_backend") or settings.backend)
        _check_pass_configs(given.get("pass_configs") or {})
        if given.get("compile_flags"):
            _warn_once("compile_flags reach no compiler of tilec: the kernel is compiled without them")
        verbose, debug = given.get("verbose"), given.get("debug_root_path")
        return Options(
            resolve_target(given.get("target")),
            given.get("out_idx"),
            settings.verbose if verbose is None else bool(verbose),
            None if debug is None else Path(debug),
            given,
        )


def _check_backend(backend: Any) -> None:
    if backend in _REFUSED_BACKENDS:
        raise UnsupportedError(f"execution_backend {backend!r}", remedy="leave it out")
    if backend not in _BACKENDS:
        known = ", ".join(repr(each) for each in _BACKENDS if each)
        raise SourceValueError(f"unknown execution_backend {backend!r}", remedy=f"use one of {known}")


def _check_pass_configs(configs: Mapping[Any, Any]) -> None:
    """No key changes a result; those that nobody knows are told apart from those without an effect."""
    for key in configs:
        text = str(getattr(key, "value", key))
        if text not in PassConfigKey._value2member_map_:
            _warn_once(f"pass_configs has the unknown key {text}, which means nothing")


@lru_cache(maxsize=256)
def _warn_once(text: str) -> None:
    warnings.warn(text, stacklevel=2)
