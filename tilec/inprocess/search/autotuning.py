"""`autotune`, a decorator above `jit`, and `AutoTuner`, the same search for a plain factory."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tilec.errors import SourceAssertionError, SourceValueError
from tilec.inprocess.calls.callers import distinct
from tilec.inprocess.compilation.keys import kernel_key
from tilec.inprocess.compilation.request import Request
from tilec.inprocess.jitted import JITImpl
from tilec.inprocess.kernel import JITKernel
from tilec.inprocess.measuring.inputs import TensorSupplyType
from tilec.inprocess.options import Options
from tilec.inprocess.search.tuned import AutotuneResult, ProfileArgs, search_key
from tilec.inprocess.search.tuning import Search
from tilec.language.frontend.compile_options import flag_list
from tilec.language.frontend.elaborate import RESERVED
from tilec.language.frontend.programs import PrimFunc
from tilec.settings import read_settings


class AutoTuneImpl:
    """A jitted function with configs. A call tunes once per arguments, then it is a call of the jitted
    function with the best config: a factory gives the best `JITKernel`, an eager kernel runs it. Arguments
    that name tunables leave the configs that agree with them; if all are given, nothing is tuned."""

    def __init__(self, jit_impl: JITImpl, configs: Any, profile: ProfileArgs, skipped: Sequence[str]) -> None:
        self.jit_impl = jit_impl
        self.configs = configs if callable(configs) else expand(configs)
        jit_impl.tuning_configs = self.configs
        self.profile = profile
        self._skipped = frozenset(skipped)
        self._best: dict[Any, AutotuneResult] = {}
        self.__name__, self.__doc__ = jit_impl.__name__, jit_impl.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The best kernel (lazy), or the outputs of a run (eager)."""
        kernel = self._best_kernel(args, kwargs)
        if kernel is None:
            return self.jit_impl(*args, **kwargs)
        if self.jit_impl.is_lazy_mode():
            return kernel
        return kernel(*self.jit_impl.arg_parser(*args, **kwargs)[1])

    def __getattr__(self, name: str) -> Any:
        """What is not about tuning is the jitted function's."""
        if name.startswith("__") or "jit_impl" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.jit_impl, name)

    def compile(self, *args: Any, **kwargs: Any) -> JITKernel:
        """The best kernel for these arguments."""
        return self._best_kernel(args, kwargs) or self.jit_impl.compile(*args, **kwargs)

    def _best_kernel(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> JITKernel | None:
        """The kernel of the fastest config; None where the arguments leave nothing to choose."""
        given = self._given(args, kwargs)
        configs = self._configs(args, kwargs, given)
        if configs is None:
            return None
        kernel = self._tuned(args, kwargs, given, configs).kernel
        assert kernel is not None
        return kernel

    def _given(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        signature = self.jit_impl.signature
        named = {name: value for name, value in kwargs.items() if name in signature.parameters}
        return dict(signature.bind_partial(*args, **named).arguments)

    def _configs(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], given: Mapping[str, Any]
    ) -> list[dict[str, Any]] | None:
        """The configs that agree with the arguments; None where those leave nothing to choose."""
        all_configs = expand(self.configs(*args, **kwargs) if callable(self.configs) else self.configs)
        names = {name for config in all_configs for name in config if name not in RESERVED}
        pinned = names & set(given)
        if names and pinned == names:
            return None
        return [
            {name: value for name, value in config.items() if name not in pinned}
            for config in all_configs
            if all(config.get(name, given[name]) == given[name] for name in pinned)
        ]

    def _tuned(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        given: Mapping[str, Any],
        configs: list[dict[str, Any]],
    ) -> AutotuneResult:
        key = distinct({name: _shape(value) for name, value in given.items() if name not in self._skipped})
        if key not in self._best:
            self._best[key] = self._search(args, kwargs, given, configs).run()
        return self._best[key]

    def _search(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        given: Mapping[str, Any],
        configs: list[dict[str, Any]],
    ) -> Search:
        jit_impl = self.jit_impl
        base = {name: _shape(value) for name, value in given.items()}
        found = Options.of(jit_impl.options)
        options = {"target": found.target.name, "options": repr(jit_impl.out_idx), **found.identity}
        return Search(
            jit_impl.__name__,
            lambda config: self._request(args, kwargs, config),
            configs,
            self.profile,
            None if jit_impl.is_lazy_mode() else self._runtime(given),
            search_key(kernel_key(jit_impl.captured, base, options), configs, self.profile),
        )

    def _request(self, args: Sequence[Any], kwargs: Mapping[str, Any], config: Mapping[str, Any]) -> Request:
        return with_options(self.jit_impl._request(args, {**kwargs, **tunables(config)}), config)

    def _runtime(self, given: Mapping[str, Any]) -> list[Any]:
        """What an eager kernel itself would get from this call."""
        compiled = self.jit_impl.compile_time_parameters()
        names = self.jit_impl.captured.parameters
        return [given[name] for name in names if name in given and name not in compiled]


def _shape(value: Any) -> Any:
    """Tensors count by their shape and dtype."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return ("tensor", tuple(map(int, value.shape)), str(value.dtype))
    return value


def tunables(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config without what it says to the compiler."""
    return {name: value for name, value in config.items() if name not in RESERVED}


def with_options(request: Request, config: Mapping[str, Any]) -> Request:
    """The request with the pass configs (key by key) and the compile flags (behind its own) of one config."""
    pass_configs, flags = config.get("pass_configs"), config.get("compile_flags")
    if not pass_configs and not flags:
        return request
    given = dict(request.options.given)
    if pass_configs:
        given["pass_configs"] = {**(given.get("pass_configs") or {}), **pass_configs}
    if flags:
        given["compile_flags"] = [*flag_list(given.get("compile_flags")), *flag_list(flags)]
    return replace(request, options=Options.of(given))


def expand(configs: Any) -> list[dict[str, Any]]:
    """A list of configs: a dict of lists is their product. Raises ValueError for anything else."""
    if isinstance(configs, Mapping):
        return [dict(zip(configs, values, strict=True)) for values in itertools.product(*configs.values())]
    if not isinstance(configs, Iterable):
        raise SourceValueError(f"configs is {configs!r}", remedy="give a list of dicts, or a dict of lists")
    return [dict(config) for config in configs]


def autotune(
    *functions: Any, configs: Any = None, do_not_specialize: Any = None, **profile: Any
) -> Callable[[Any], AutoTuneImpl]:
    """Decorator above `jit`. ``configs``: a list of dicts, a dict of lists (their product), or a function of
    the call's arguments that gives one; the other keywords are those of `ProfileArgs`.

    Raises ValueError without configs, AssertionError over anything but a jitted function."""
    if functions or configs is None:
        raise SourceValueError("autotune needs configs", remedy="write @tilec.autotune(configs=[...])")
    known = {each.name for each in fields(ProfileArgs)}
    unknown = sorted(set(profile) - known)
    if unknown:
        raise TypeError(f"autotune() got an unexpected keyword argument {unknown[0]!r}")
    checked = ProfileArgs(**{"timeout": 100, **profile})

    def decorate(function: Any) -> AutoTuneImpl:
        if not isinstance(function, JITImpl):
            raise SourceAssertionError("autotune stands above @tilec.jit", remedy="decorate with jit first")
        named = [do_not_specialize] if isinstance(do_not_specialize, str) else do_not_specialize
        return AutoTuneImpl(function, configs, checked, named or ())

    return decorate


class AutoTuner:
    """The search among configs of a plain factory of prim_funcs: ``AutoTuner(fn, configs).run()``."""

    def __init__(self, fn: Callable[..., Any], configs: Any) -> None:
        self.fn = fn.func if isinstance(fn, JITImpl) else fn
        self.configs = configs
        self._options: dict[str, Any] = {}
        self._profile = ProfileArgs()
        self._parameters: dict[str, Any] = {}

    @classmethod
    def from_kernel(cls, kernel: Callable[..., Any], configs: Any) -> AutoTuner:
        """The tuner of a factory."""
        return cls(kernel, configs)

    def set_compile_args(
        self,
        out_idx: Any = None,
        target: Any = None,
        execution_backend: Any = None,
        target_host: Any = None,
        verbose: Any = None,
        pass_configs: Any = None,
    ) -> AutoTuner:
        """The options of `tilec.compile`."""
        self._options = {
            "out_idx": out_idx,
            "target": target,
            "execution_backend": execution_backend,
            "target_host": target_host,
            "verbose": verbose,
            "pass_configs": pass_configs,
        }
        return self

    def set_profile_args(
        self,
        warmup: int = 25,
        rep: int = 100,
        timeout: float = 30,
        supply_type: TensorSupplyType = TensorSupplyType.Auto,
        ref_prog: Callable[..., Any] | None = None,
        supply_prog: Callable[..., Any] | None = None,
        rtol: float = 1e-2,
        atol: float = 1e-2,
        max_mismatched_ratio: float = 0.01,
        skip_check: bool = False,
        manual_check_prog: Callable[..., Any] | None = None,
        cache_input_tensors: bool = False,
        backend: str = "event",
    ) -> AutoTuner:
        """The fields of `ProfileArgs`."""
        self._profile = ProfileArgs(
            warmup=warmup,
            rep=rep,
            timeout=timeout,
            supply_type=supply_type,
            ref_prog=ref_prog,
            supply_prog=supply_prog,
            rtol=rtol,
            atol=atol,
            max_mismatched_ratio=max_mismatched_ratio,
            skip_check=skip_check,
            manual_check_prog=manual_check_prog,
            cache_input_tensors=cache_input_tensors,
            backend=backend,
        )
        return self

    def set_kernel_parameters(self, parameters: Mapping[str, Any]) -> AutoTuner:
        """Arguments of the factory beside the configs."""
        self._parameters = dict(parameters)
        return self

    @property
    def cache_dir(self) -> Path:
        """Where results are kept."""
        return read_settings().cache_dir

    def generate_cache_key(self) -> str | None:
        """The key of this search; None where a function that it was given has no text."""
        options = Options.of(self._options)
        function = inspect.unwrap(self.fn)
        if not inspect.isfunction(function):
            return None
        base = kernel_key(function, self._parameters, {"target": options.target.name, **options.identity})
        return search_key(base, self._configs(), self._profile)

    def run(
        self,
        warmup: int | None = None,
        rep: int | None = None,
        timeout: float | None = None,
        use_pipeline: bool = False,
        enable_grouped_compile: bool = False,
        group_compile_size: int = 2,
        benchmark_devices: Any = None,
        benchmark_multi_gpu: bool = False,
        early_stop: bool = False,
        early_stop_factor: float = 2.0,
    ) -> AutotuneResult:
        """The best config. Counts and seconds that are given win over those of `set_profile_args`; options
        that spread compilation over processes and devices mean nothing."""
        counts = {"warmup": warmup, "rep": rep, "timeout": timeout}
        chosen: dict[str, Any] = {name: value for name, value in counts.items() if value is not None}
        profile = replace(self._profile, early_stop=early_stop, early_stop_factor=early_stop_factor, **chosen)
        configs = self._configs()
        name = getattr(self.fn, "__name__", "the kernel")
        self._profile = profile
        return Search(name, self._request, configs, profile, None, self.generate_cache_key()).run()

    def _configs(self) -> list[dict[str, Any]]:
        return expand(self.configs() if callable(self.configs) else self.configs)

    def _request(self, config: Mapping[str, Any]) -> Request:
        made = self.fn(**{**self._parameters, **tunables(config)})
        if not isinstance(made, PrimFunc):
            raise SourceValueError(f"the factory returned {type(made).__name__}, not a prim_func")
        return with_options(Request(made, {}, {}, Options.of(self._options)), config)
