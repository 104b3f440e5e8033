"""What a search in process is told, what it finds, and what is kept of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.cache import Store, digest
from tilec.errors import SourceValueError
from tilec.inprocess.compilation import store
from tilec.inprocess.kernel import JITKernel
from tilec.inprocess.measuring.inputs import TensorSupplyType
from tilec.settings import read_settings

_KIND = "tuned"


@dataclass(frozen=True)
class ProfileArgs:
    """How configs are compared. ``warmup`` and ``rep`` are counts, ``timeout`` seconds per config.
    ``ref_prog`` gives the expected outputs unless ``skip_check``; ``manual_check_prog(outputs, expected)``
    compares them in its own way; ``supply_prog(params)`` makes inputs. With ``early_stop`` a config that is
    ``early_stop_factor`` times slower than the best so far is not measured to the end."""

    warmup: int = 25
    rep: int = 100
    timeout: float = 30
    supply_type: TensorSupplyType = TensorSupplyType.Auto
    ref_prog: Callable[..., Any] | None = None
    supply_prog: Callable[..., Any] | None = None
    rtol: float = 1e-2
    atol: float = 1e-2
    max_mismatched_ratio: float = 0.01
    skip_check: bool = False
    manual_check_prog: Callable[..., Any] | None = None
    cache_input_tensors: bool = False
    backend: str = "event"
    early_stop: bool = False
    early_stop_factor: float = 2.0

    def __post_init__(self) -> None:
        if self.early_stop_factor < 1:
            raise SourceValueError("early_stop_factor is below 1", remedy="give 1 or more")

    @property
    def persists(self) -> bool:
        """Whether the arguments say all: a function given by the caller has no text to compare."""
        return self.ref_prog is None and self.supply_prog is None and self.manual_check_prog is None


@dataclass
class AutotuneResult:
    """The best config: ``latency`` and ``ref_latency`` in milliseconds; ``func`` is what was compiled to
    ``kernel``, ``libcode`` its device source."""

    latency: float
    config: dict[str, Any]
    ref_latency: float | None = None
    libcode: str | None = None
    func: Any = None
    kernel: JITKernel | None = None


@dataclass(frozen=True)
class Trial:
    """What became of one config. ``status``: an outcome of `tilec.portable.runner.judge` ("ok",
    "not compiled", "wrong result", "refused", "timeout"); ``latency``: milliseconds where it is "ok";
    ``error`` in words."""

    config: Mapping[str, Any]
    status: str
    latency: float | None = None
    error: str = ""
    kernel: JITKernel | None = None


def with_kernel(best: AutotuneResult) -> AutotuneResult:
    """The result, with what its kernel says of it and what it says of its kernel."""
    if best.kernel is not None:
        best.kernel.update_tuner_result(best.latency, best.config, best.ref_latency)
        best.libcode = best.kernel.get_kernel_source()
    return best


# ---- what is kept ----


def plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config as JSON gives it back."""
    made: dict[str, Any] = json.loads(json.dumps(dict(config), default=str))
    return made


def search_key(base: str | None, configs: Sequence[Mapping[str, Any]], profile: ProfileArgs) -> str | None:
    """The key of a search among configs of the kernel that ``base`` identifies."""
    if base is None:
        return None
    options = (profile.warmup, profile.rep, profile.supply_type.name, profile.backend)
    return digest(base, json.dumps([plain(config) for config in configs]), repr(options))


def read(key: str) -> AutotuneResult | None:
    """The result of an earlier search, without its kernel."""
    data = _store().get(_KIND, key) if _is_on() else None
    return None if data is None else AutotuneResult(**json.loads(data))


def keep(key: str, best: AutotuneResult) -> None:
    """Writes a result, if the cache can be written."""
    fields = {"latency": best.latency, "config": plain(best.config), "ref_latency": best.ref_latency}
    if _is_on():
        with contextlib.suppress(OSError):
            _store().put(_KIND, key, json.dumps(fields).encode())


def _is_on() -> bool:
    return store.is_cache_enabled() and read_settings().tuning_cache


def _store() -> Store:
    return Store(read_settings().cache_dir)
