"""`autotune`, a decorator above `jit`, and `AutoTuner`, the same search for a plain factory."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tilec.errors import SourceAssertionError, SourceValueError
from tilec.inprocess.callers import freeze
from tilec.inprocess.jitted import JITImpl
from tilec.inprocess.kernel import JITKernel
from tilec.inprocess.keys import kernel_key
from tilec.inprocess.options import Options
from tilec.inprocess.request import Request
from tilec.inprocess.tuning import AutotuneResult, ProfileArgs, Search, search_key
from tilec.language.programs import PrimFunc
from tilec.settings import read_settings

_PASS_CONFIGS = "pass_configs"


class AutoTuneImpl:
    """A jitted function with configs. A call tunes once per arguments, then it is a call of the jitted
    function with the best config: a factory gives the best `JITKernel`, an eager kernel runs it. Arguments
    that name tunables leave the configs that agree with them; if all are given, nothing is tuned."""

    def __init__(self, jit_impl: JITImpl, configs: Any, profile: ProfileArgs, skipped: Sequence[str]) -> None:
        self.jit_impl = jit_impl
        self.configs = configs
        self.profile = profile
        self._skipped = frozenset(skipped)
        self._best: dict[Any, AutotuneResult] = {}
        self.__name__, self.__doc__ = jit_impl.__name__, jit_impl.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The best kernel (lazy), or the outputs of a run (eager)."""
        given = self._given(args, kwargs)
        configs = self._configs(args, kwargs, given)
        if configs is None:
            return self.jit_impl(*args, **kwargs)
        best = self._tuned(args, kwargs, given, configs)
        if self.jit_impl.is_lazy_mode():
            return best.kernel
        tunables = {name: value for name, value in best.config.items() if name != _PASS_CONFIGS}
        return self.jit_impl(*args, **{**kwargs, **tunables})

    def compile(self, *args: Any, **kwargs: Any) -> JITKernel:
        """The best kernel for these arguments."""
        given = self._given(args, kwargs)
        configs = self._configs(args, kwargs, given)
        if configs is None:
            return self.jit_impl.compile(*args, **kwargs)
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
        names = {name for config in all_configs for name in config if name != _PASS_CONFIGS}
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
        key = freeze([_shape(value) for name, value in sorted(given.items()) if name not in self._skipped])
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
        options = {"target": Options.of(jit_impl.options).target.name, "options": repr(jit_impl.out_idx)}
        return Search(
            jit_impl.__name__,
            lambda config: self._request(args, kwargs, config),
            configs,
            self.profile,
            None if jit_impl.is_lazy_mode() else self._runtime(given),
            search_key(kernel_key(jit_impl.captured, base, options), configs, self.profile),
        )

    def _request(self, args: Sequence[Any], kwargs: Mapping[str, Any], config: Mapping[str, Any]) -> Request:
        tunables = {name: value for name, value in config.items() if name != _PASS_CONFIGS}
        request = self.jit_impl._request(args, {**kwargs, **tunables})
        return with_pass_configs(request, config)

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


def with_pass_configs(request: Request, config: Mapping[str, Any]) -> Request:
    """The request with the pass configs of one config."""
    extra = config.get(_PASS_CONFIGS)
    if not extra:
        return request
    given = request.options.given
    merged = {**(given.get(_PASS_CONFIGS) or {}), **extra}
    return replace(request, options=Options.of({**given, _PASS_CONFIGS: merged}))


def expand(configs: Any) -> list[dict[str, Any]]:
    """A list of configs: a dict of lists is their product. Raises ValueError for anything else."""
    if isinstance(configs, Mapping):
        return [dict(zip(configs, values, strict=True)) for values in itertools.product(*configs.values())]
    if not isinstance(configs, Iterable):
        raise SourceValueError(f"configs is {configs!r}", remedy="give a list of dicts, or a dict of lists")
    return [dict(config) for config in configs]


def autotune(*functions: Any, configs: Any = None, do_not_specialize: Any = None, **profile: Any) -> Any:
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
        return AutoTuneImpl(function, configs, checked, do_not_specialize or ())

    return decorate


class AutoTuner:
    """The search among configs of a plain factory of prim_funcs: ``AutoTuner(fn, configs).run()``."""

    def __init__(self, fn: Callable[..., Any], configs: Any) -> None:
        self.fn = fn
        self.configs = configs
        self._options: dict[str, Any] = {}
        self._profile = ProfileArgs()
        self._parameters: dict[str, Any] = {}

    @classmethod
    def from_kernel(cls, kernel: Callable[..., Any], configs: Any) -> AutoTuner:
        """The tuner of a factory."""
        return cls(kernel, configs)

    def set_compile_args(self, **options: Any) -> AutoTuner:
        """The options of `tilec.compile`."""
        self._options = options
        return self

    def set_profile_args(self, **options: Any) -> AutoTuner:
        """The fields of `ProfileArgs`."""
        self._profile = replace(self._profile, **options)
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
        target = Options.of(self._options).target.name
        function = inspect.unwrap(self.fn)
        if not inspect.isfunction(function):
            return None
        base = kernel_key(function, self._parameters, {"target": target})
        return search_key(base, expand(self.configs), self._profile)

    def run(
        self,
        warmup: int | None = None,
        rep: int | None = None,
        timeout: float | None = None,
        early_stop: bool = False,
        early_stop_factor: float = 2.0,
        **_ignored: Any,
    ) -> AutotuneResult:
        """The best config. Options that spread compilation over processes and devices mean nothing."""
        counts: dict[str, Any] = {"warmup": warmup, "rep": rep, "timeout": timeout}
        chosen = {name: value for name, value in counts.items() if value is not None}
        profile = replace(self._profile, early_stop=early_stop, early_stop_factor=early_stop_factor, **chosen)
        configs = expand(self.configs)
        name = getattr(self.fn, "__name__", "the kernel")
        return Search(name, self._request, configs, profile, None, self.generate_cache_key()).run()

    def _request(self, config: Mapping[str, Any]) -> Request:
        tunables = {name: value for name, value in config.items() if name != _PASS_CONFIGS}
        made = self.fn(**{**self._parameters, **tunables})
        if not isinstance(made, PrimFunc):
            raise SourceValueError(f"the factory returned {type(made).__name__}, not a prim_func")
        return with_pass_configs(Request(made, {}, {}, Options.of(self._options)), config)
