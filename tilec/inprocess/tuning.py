"""The search among configs in process: compile all, check each, time what is right, keep the fastest."""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

from tilec.cache import Store, digest
from tilec.errors import SourceRuntimeError, SourceValueError, TilecError
from tilec.inprocess import store
from tilec.inprocess.bench import do_bench
from tilec.inprocess.kernel import JITKernel
from tilec.inprocess.profiler import Profiler
from tilec.inprocess.request import Request, compile_all
from tilec.inprocess.supply import TensorSupplyType
from tilec.settings import read_settings

_KIND = "tuned"
_LOG = logging.getLogger("tilec")
_INPUTS = threading.local()


class TimeoutException(Exception):
    """A config took longer than it may."""


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


# ---- inputs ----


@contextlib.contextmanager
def set_autotune_inputs(*inputs: Any) -> Iterator[None]:
    """In the block, tuning runs kernels on these inputs, given one by one or as one list."""
    before = get_autotune_inputs()
    _INPUTS.given = list(inputs[0] if len(inputs) == 1 and isinstance(inputs[0], (list, tuple)) else inputs)
    try:
        yield
    finally:
        _INPUTS.given = before


def get_autotune_inputs() -> list[Any] | None:
    """What `set_autotune_inputs` set on this thread."""
    return getattr(_INPUTS, "given", None)


# ---- the search ----


@dataclass
class Search:
    """One search. ``make(config)`` is the request of a config; ``arguments`` are the call's own, where there
    is one, as inputs; ``key`` identifies the search in the cache, None where it cannot be kept."""

    name: str
    make: Callable[[Mapping[str, Any]], Request]
    configs: Sequence[Mapping[str, Any]]
    profile: ProfileArgs
    arguments: Sequence[Any] | None = None
    key: str | None = None
    _inputs: list[Any] | None = field(default=None, init=False)

    def run(self) -> AutotuneResult:
        """The best config. Raises RuntimeError where none passes."""
        known = self._known()
        if known is not None:
            return known
        best: AutotuneResult | None = None
        for config, kernel in self._kernels():
            latency = self._try(kernel, config, best)
            if latency is not None and (best is None or latency < best.latency):
                best = AutotuneResult(latency, dict(config), func=kernel.prim_func, kernel=kernel)
        if best is None:
            raise SourceRuntimeError(
                f"no configuration of {self.name} passed",
                why=f"{len(self.configs)} were tried; the log of tilec has what each one failed on",
                remedy="correct the configs, the reference or the tolerances",
            )
        best.ref_latency = self._reference_latency(best)
        self._keep(best)
        return _with_kernel(best)

    def _kernels(self) -> Iterator[tuple[Mapping[str, Any], JITKernel]]:
        """Every config that compiles."""
        configs, requests = [], []
        for config in self.configs:
            try:
                requests.append(self.make(config))
                configs.append(config)
            except (TilecError, TypeError, ValueError, AssertionError) as error:
                _LOG.warning("%s: config %s is skipped: %s", self.name, config, error)
        made = compile_all(requests, ignore_error=True)
        return ((config, kernel) for config, kernel in zip(configs, made, strict=True) if kernel is not None)

    def _try(self, kernel: JITKernel, config: Mapping[str, Any], best: AutotuneResult | None) -> float | None:
        """Milliseconds of a config; None where it is wrong or fails. Raises ValueError where no inputs can be
        supplied, which is no fault of a config."""
        inputs = self._inputs_of(kernel)
        try:
            with _time_limit(self.profile.timeout):
                self._check(kernel, inputs)
                return self._time(kernel, inputs, best)
        except (TimeoutException, AssertionError, RuntimeError, TypeError, ValueError) as error:
            _LOG.warning("%s: config %s is skipped: %s", self.name, config, error)
            return None

    def _time(self, kernel: JITKernel, inputs: Sequence[Any], best: AutotuneResult | None) -> float:
        profile = self.profile
        stop = best.latency * profile.early_stop_factor / 2 if best and profile.early_stop else None
        return float(
            do_bench(  # type: ignore[arg-type]
                lambda: kernel(*inputs),
                _n_warmup=profile.warmup,
                _n_repeat=profile.rep,
                backend=profile.backend,
                device="cpu" if kernel.target.is_cpu else "cuda",
                early_stop_baseline=stop,
            )
        )

    def _check(self, kernel: JITKernel, inputs: Sequence[Any]) -> None:
        """Raises AssertionError where outputs are not the reference's. A kernel without outputs of its own
        cannot be compared."""
        profile = self.profile
        if profile.ref_prog is None or profile.skip_check or not kernel.out_idx:
            return
        profiler = self._profiler(kernel)
        if profile.manual_check_prog is not None:
            profiler.manual_assert_close(profile.ref_prog, inputs, profile.manual_check_prog)
            return
        profiler.assert_allclose(
            profile.ref_prog, inputs, profile.atol, profile.rtol, profile.max_mismatched_ratio
        )

    def _inputs_of(self, kernel: JITKernel) -> list[Any]:
        given = get_autotune_inputs()
        if given is not None:
            return given
        if self._inputs is None or not self.profile.cache_input_tensors:
            self._inputs = self._supplied(kernel)
        return self._inputs

    def _supplied(self, kernel: JITKernel) -> list[Any]:
        profiler = self._profiler(kernel)
        if self.profile.supply_prog is not None:
            inputs = [param for index, param in enumerate(kernel.params) if index not in kernel.out_idx]
            return list(self.profile.supply_prog(inputs))
        if self.arguments is not None:
            return [each.clone() if hasattr(each, "clone") else each for each in self.arguments]
        return profiler.inputs()

    def _profiler(self, kernel: JITKernel) -> Profiler:
        return kernel.get_profiler(self.profile.supply_type)

    def _reference_latency(self, best: AutotuneResult) -> float | None:
        reference, kernel = self.profile.ref_prog, best.kernel
        if reference is None or kernel is None:
            return None
        inputs = self._inputs_of(kernel)
        device = "cpu" if kernel.target.is_cpu else "cuda"
        counts = {"_n_warmup": self.profile.warmup, "_n_repeat": self.profile.rep}
        return float(do_bench(lambda: reference(*inputs), device=device, **counts))  # type: ignore[arg-type]

    # ---- what is known ----

    def _known(self) -> AutotuneResult | None:
        data = self._store().get(_KIND, self.key) if self._is_kept() and self.key else None
        if data is None:
            return None
        found = AutotuneResult(**json.loads(data))
        wanted = [config for config in self.configs if _plain(config) == found.config]
        if not wanted:
            return None
        (kernel,) = compile_all([self.make(wanted[0])])
        return _with_kernel(replace(found, config=dict(wanted[0]), kernel=kernel))

    def _keep(self, best: AutotuneResult) -> None:
        if not self._is_kept() or not self.key:
            return
        fields = {"latency": best.latency, "config": _plain(best.config), "ref_latency": best.ref_latency}
        with contextlib.suppress(OSError):
            self._store().put(_KIND, self.key, json.dumps(fields).encode())

    def _is_kept(self) -> bool:
        return self.profile.persists and get_autotune_inputs() is None and store.is_cache_enabled()

    @staticmethod
    def _store() -> Store:
        return Store(read_settings().cache_dir)


def _with_kernel(best: AutotuneResult) -> AutotuneResult:
    kernel = best.kernel
    if kernel is not None:
        kernel.update_tuner_result(best.latency, best.config, best.ref_latency)
        best.libcode = kernel.get_kernel_source()
    return best


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config as JSON gives it back."""
    plain: dict[str, Any] = json.loads(json.dumps(dict(config), default=str))
    return plain


def search_key(base: str | None, configs: Sequence[Mapping[str, Any]], profile: ProfileArgs) -> str | None:
    """The key of a search among configs of the kernel that ``base`` identifies."""
    if base is None:
        return None
    options = (profile.warmup, profile.rep, profile.supply_type.name, profile.backend)
    return digest(base, json.dumps([_plain(config) for config in configs]), repr(options))


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raises `TimeoutException` in the block after some seconds; in the main thread alone, where Python
    delivers signals."""
    if threading.current_thread() is not threading.main_thread() or seconds <= 0:
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutException(f"it took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
