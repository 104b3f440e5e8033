"""The decorator and the functions that compile in process: jit, compile, par_compile."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MethodType
from typing import Any, overload

from tilec.errors import SourceAssertionError, SourceTypeError
from tilec.inprocess.calls.callers import (
    CONTAINERS,
    NOT_GIVEN,
    Caller,
    asking_caller,
    distinct,
    eager_caller,
    factory_caller,
    freeze,
)
from tilec.inprocess.calls.constants import Constants
from tilec.inprocess.compilation.compiling import compile_all
from tilec.inprocess.compilation.request import BoundKernel, Request, compile_request
from tilec.inprocess.functions import JITFunc
from tilec.inprocess.kernel import JITKernel
from tilec.inprocess.options import Options
from tilec.inprocess.search.searches import AutoTuneResult, CallArgs, as_call, expanded, refuse_axes, search
from tilec.language.frontend.jitted import JitFunction
from tilec.language.frontend.pass_configs import by_text
from tilec.language.frontend.programs import PrimFunc
from tilec.language.values.scalars import dtype as as_dtype


class JITImpl(JitFunction):
    """A function decorated with `jit`. Calling a factory (``mode`` "lazy") gives a `JITKernel`; calling an
    eager kernel compiles it for these arguments and runs it. Kernels are kept per arguments."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any], depth: int = 2) -> None:
        super().__init__(function, options, depth + 1)
        self._caller: Caller | None = None
        self._kernels: dict[Any, JITKernel] = {}
        #: The same kernels by what a call finds without a look into its arguments.
        self._at_hand: dict[Any, JITKernel] = {}

    def __getattr__(self, name: str) -> Any:
        """The options of `jit` are attributes."""
        options = self.__dict__.get("options", {})
        if name in options:
            return options[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """In a class it is a method: called on an object, it gets that object first."""
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str:
        """By its name in its module, as functions are."""
        return self.func.__qualname__

    @property
    def signature(self) -> inspect.Signature:
        """That of the function."""
        return inspect.signature(self.func)

    @property
    def func_source(self) -> str:
        """The text of the function."""
        return inspect.getsource(self.func)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A `JITKernel` (lazy), or the outputs of a run (eager)."""
        caller = self._caller or self._make_caller()
        try:
            key = caller.typed(*args, **kwargs)
        except TypeError:
            self._bind(caller, args, kwargs)
            raise
        except (AttributeError, IndexError) as error:
            bound = self._bind(caller, args, kwargs)
            raise SourceTypeError(
                f"{self.__name__} cannot read its constants from the arguments",
                place=self.captured.place,
                why=caller.unreadable(bound) or str(error),
                remedy="pass tensors of the annotated shapes, or the constants by name",
            ) from error
        try:
            kernel = self._at_hand.get(key)
        except TypeError:  # a list or a dict
            kernel = None
        if kernel is None:
            kernel = self._kernel(caller, key, args, kwargs)
        return kernel if self.mode == "lazy" else kernel(*self._runtime(caller, args, kwargs))

    def parse_cache_key(self, *args: Any, **kwargs: Any) -> Any:
        """What distinguishes the kernels of this object: compile-time arguments and constants."""
        if self._has_open_dtypes:  # of torch, NumPy or the language: one name for all
            request = self._request(args, kwargs)
            return (*map(freeze, request.arguments.values()), *request.constants.values())
        key = (self._caller or self._make_caller()).key(*args, **kwargs)
        try:
            hash(key)
        except TypeError:
            key = freeze(key)
        return key

    def compile(self, *args: Any, **kwargs: Any) -> JITKernel:
        """The kernel for these arguments; constants may be given by name in place of tensors."""
        return compile_request(self._request(args, kwargs))

    def par_compile(
        self, configs: Iterable[Any], num_workers: int | None = None, ignore_error: bool = False
    ) -> list[JITKernel | None]:
        """The kernels of several configs, each a dict, a tuple of arguments or a `CallArgs`, in order."""
        calls = [as_call(config) for config in configs]
        requests = [self._request(call.args, call.kwargs) for call in calls]
        return compile_all(requests, num_workers, ignore_error)

    def get_tir(self, *args: Any, **kwargs: Any) -> BoundKernel:
        """The kernel for these arguments; its text is the tile IR, and `compile` takes it."""
        return BoundKernel(self._request(args, kwargs))

    def get_kernel_source(self, *args: Any, **kwargs: Any) -> str:
        """The source of the device code for these arguments."""
        return self.compile(*args, **kwargs).get_kernel_source()

    def bench(self, *args: Any, **kwargs: Any) -> Any:
        """Milliseconds of a call with these arguments, compiled before."""
        kernel = self.compile(*args, **kwargs)
        if self.mode == "lazy":
            return kernel.get_profiler().do_bench()
        values = self._runtime(self._caller or self._make_caller(), args, kwargs)
        return kernel.bench(*values)

    def arg_parser(self, *args: Any, **kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
        """(what `parse_cache_key` gives, the arguments that the kernel takes)."""
        caller = self._caller or self._make_caller()
        return self.parse_cache_key(*args, **kwargs), self._runtime(caller, args, kwargs)

    def partial(self, *args: Any, **kwargs: Any) -> JITFunc:
        """What a call with these arguments would compile."""
        request = self._request(args, kwargs)
        return JITFunc(
            target=request.options.target,
            target_host=self.options.get("target_host"),
            const_args=(*map(freeze, request.arguments.values()), *request.constants.values()),
            arg_parser=self.arg_parser,
            prim_func=BoundKernel(request),
        )

    # ---- searches ----

    def get_tune_configs(self, *args: Any, **kwargs: Any) -> list[CallArgs]:
        """The calls that `tune` compares: the product of the axes that ``tl.tune([...])`` makes of arguments,
        in the order of the keywords."""
        return expanded(args, kwargs)

    def tune_configs(self, configs: Iterable[Any]) -> AutoTuneResult:
        """Compiles and measures calls, each a `CallArgs`, a dict or a tuple. Raises RuntimeError where none
        runs."""
        return search(self, configs)

    def tune(self, *args: Any, **kwargs: Any) -> AutoTuneResult:
        """The fastest call along the axes that ``tl.tune([...])`` makes of arguments."""
        return self.tune_configs(self.get_tune_configs(*args, **kwargs))

    def runtime_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """What an eager kernel itself takes of a call."""
        return self._runtime(self._caller or self._make_caller(), args, kwargs)

    def compiled_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The compile-time side of a call by name: "A.dtype", "A__shape_0", constants, arguments."""
        if self.is_lazy_mode():
            return dict(self._request(args, kwargs).arguments)
        request = self._request(args, kwargs)
        names = self.shape_names.constants
        sizes = {size.place: request.constants[name] for name in names for size in names[name]}
        dtypes = {name: request.arguments[name] for name in self.open_dtypes()}
        others = {name: value for name, value in request.constants.items() if name not in names}
        return {**dtypes, **sizes, **others, **request.arguments}

    # ---- one call ----

    def _kernel(
        self, caller: Caller, key: tuple[Any, ...], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> JITKernel:
        """The kernel of a key that `Caller.typed` gave, compiled if nothing equal was."""
        values = key[: len(caller.compiled) + len(caller.constants)]
        if self.mode == "eager":
            self._refuse_tensors(dict(zip(caller.compiled, values, strict=False)))
        wanted = distinct(values)
        kernel = self._kernels.get(wanted)
        if kernel is None:
            kernel = self._kernels[wanted] = compile_request(self._request(args, kwargs))
        if not any(isinstance(value, (*CONTAINERS, list, dict, set)) for value in values):
            self._at_hand[key] = kernel
        return kernel

    def _make_caller(self) -> Caller:
        self._caller = factory_caller(self.func) if self.mode == "lazy" else self._eager_caller()
        return self._caller

    def _eager_caller(self) -> Caller:
        about = self.captured, self.compile_time_parameters(), self.open_dtypes(), self._constants.names
        binds = self._constants.binds
        return asking_caller(*about, self._compiled) if binds is None else eager_caller(*about, binds)

    @cached_property
    def _has_open_dtypes(self) -> bool:
        return self.mode == "eager" and bool(self.open_dtypes())

    @cached_property
    def _constants(self) -> Constants:
        return Constants(self)

    def _bind(self, caller: Caller, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments by parameter."""
        given = {name: kwargs[name] for name in kwargs if name not in caller.constants}
        return self._bound(self.signature.bind, args, given).arguments

    def _bound(
        self, bind: Callable[..., inspect.BoundArguments], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> inspect.BoundArguments:
        """Raises Python's own TypeError about wrong arguments, with the function and its parameters."""
        try:
            return bind(*args, **kwargs)
        except TypeError as error:
            raise SourceTypeError(
                f"{self.__name__}: {error}",
                place=self.captured.place,
                remedy=f"it takes {', '.join(self.signature.parameters)}",
            ) from None

    def _runtime(self, caller: Caller, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        values = caller.runtime(*args, **kwargs)
        while values and values[-1] is NOT_GIVEN:
            values = values[:-1]
        return values

    def _request(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Request:
        options = Options.of(self.options)
        if self.mode == "lazy":
            bound = self._bound(self.signature.bind, args, kwargs)
            bound.apply_defaults()
            refuse_axes(bound.arguments.values())
            return Request(self, dict(bound.arguments), {}, options)
        compiled, constants = self._compiled(args, kwargs)
        return Request(self, compiled, constants, options)

    def _compiled(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """The compile-time values, dtypes of tensors among them, and the constants by name."""
        names, dtypes = self.shape_names.names, self.open_dtypes()
        given = {names.get(key, key): value for key, value in kwargs.items()}
        known = {name: given.pop(name) for name in self._constants.names if name in given}
        named = {name: given.pop(name) for name in dtypes if name in given}
        bound = self._bound(self.signature.bind_partial, args, given)
        bound.apply_defaults()
        refuse_axes(bound.arguments.values())
        wanted = self.compile_time_parameters()
        compiled = {name: bound.arguments[name] for name in wanted if name in bound.arguments}
        self._refuse_tensors(compiled)
        compiled |= {name: str(as_dtype(self._dtype(name, named, bound.arguments))) for name in dtypes}
        missing = [name for name in wanted if name not in compiled]
        if missing:
            raise SourceTypeError(f"missing a required argument: {missing[0]!r}", place=self.captured.place)
        return compiled, self._constants.values(compiled, known, bound.arguments)

    def _refuse_tensors(self, compiled: Mapping[str, Any]) -> None:
        """Tensors are never compiled in: one that is given is declared."""
        for name, value in compiled.items():
            if hasattr(value, "__dlpack__") and len(value.shape) > 0:
                raise SourceTypeError(
                    f"{name} of {self.__name__} is a tensor that the kernel does not declare",
                    place=self.captured.place,
                    remedy=f"write `{name}: T.Tensor[[M, N], dtype]` in the body",
                )

    def _dtype(self, name: str, named: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
        """The dtype called "A.dtype", by name or of the tensor."""
        param = name.partition(".")[0]
        found = named.get(name, getattr(arguments.get(param), "dtype", None))
        if found is None:
            raise SourceTypeError(
                f"missing a required argument: {param!r}",
                place=self.captured.place,
                remedy=f"pass a tensor, tl.place(shape, dtype=...), or {name!r} by keyword",
            )
        return found


@overload
def jit(
    func: Callable[..., Any],
    *,
    out_idx: Any = ...,
    target: Any = ...,
    target_host: Any = ...,
    execution_backend: Any = ...,
    verbose: Any = ...,
    pass_configs: Any = ...,
    debug_root_path: Any = ...,
    compile_flags: Any = ...,
) -> JITImpl: ...
@overload
def jit(
    func: None = ...,
    *,
    out_idx: Any = ...,
    target: Any = ...,
    target_host: Any = ...,
    execution_backend: Any = ...,
    verbose: Any = ...,
    pass_configs: Any = ...,
    debug_root_path: Any = ...,
    compile_flags: Any = ...,
) -> Callable[[Callable[..., Any]], JITImpl]: ...
def jit(
    func: Callable[..., Any] | None = None,
    *,
    out_idx: Any = None,
    target: Any = None,
    target_host: Any = None,
    execution_backend: Any = None,
    verbose: Any = None,
    pass_configs: Any = None,
    debug_root_path: Any = None,
    compile_flags: Any = None,
) -> JITImpl | Callable[[Callable[..., Any]], JITImpl]:
    """Decorator, with or without parentheses: a factory (inner ``@T.prim_func``) or an eager kernel.

    ``out_idx``: parameters that calls allocate and return (factories only). ``target``: see
    `tilec.inprocess.targets.resolve_target`; a manifest names its own. ``debug_root_path``: a folder for the
    sources of every kernel that is compiled."""
    options = {
        "out_idx": list(out_idx) if isinstance(out_idx, (list, tuple)) else out_idx,
        "target": target,
        "target_host": target_host,
        "execution_backend": execution_backend,
        "verbose": verbose,
        "pass_configs": by_text(pass_configs),
        "debug_root_path": debug_root_path,
        "compile_flags": compile_flags,
    }
    if func is None:
        return lambda found: JITImpl(found, options)
    return JITImpl(func, options)


def compile(
    func: Any,
    out_idx: Any = None,
    execution_backend: Any = None,
    target: Any = None,
    target_host: Any = None,
    verbose: Any = None,
    pass_configs: Any = None,
    compile_flags: Any = None,
) -> JITKernel:
    """The kernel of a prim_func. Raises AssertionError for anything else."""
    return compile_request(
        _prim_func_request(
            func,
            out_idx=out_idx,
            execution_backend=execution_backend,
            target=target,
            target_host=target_host,
            verbose=verbose,
            pass_configs=pass_configs,
            compile_flags=compile_flags,
        )
    )


def par_compile(
    funcs: Iterable[Any],
    out_idx: Any = None,
    execution_backend: Any = None,
    target: Any = None,
    target_host: Any = None,
    verbose: Any = None,
    pass_configs: Any = None,
    compile_flags: Any = None,
    num_workers: int | None = None,
    ignore_error: bool = False,
) -> list[JITKernel | None]:
    """The kernels of several prim_funcs in order, compiled in ``num_workers`` processes (default: one per
    kernel, up to the cores). With ``ignore_error`` a failure gives None and a warning, else the first one is
    raised."""
    requests = [
        _prim_func_request(
            func,
            out_idx=out_idx,
            execution_backend=execution_backend,
            target=target,
            target_host=target_host,
            verbose=verbose,
            pass_configs=pass_configs,
            compile_flags=compile_flags,
        )
        for func in funcs
    ]
    return compile_all(requests, num_workers, ignore_error)


def _prim_func_request(func: Any, **options: Any) -> Request:
    if isinstance(func, BoundKernel):
        named = {key: value for key, value in options.items() if value is not None}
        if isinstance(func.request.entry, JITImpl):
            func.request.entry.check_out_idx(named.get("out_idx"))
        return replace(func.request, options=Options.of({**func.request.options.given, **named}))
    if not isinstance(func, PrimFunc):
        raise SourceAssertionError(
            f"tilec.compile takes a prim_func, not {type(func).__name__}",
            remedy="put @T.prim_func above it, call the factory first, or call the jitted function itself",
        )
    return Request(func, {}, {}, Options.of(options))
