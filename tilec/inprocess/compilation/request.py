"""One kernel that is wanted: from the cache, or elaborated, compiled and kept there."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilec.backends.base import backend_of
from tilec.cache import digest
from tilec.errors import EnvironmentError_, SourceValueError
from tilec.inprocess.compilation import store
from tilec.inprocess.compilation.building import Card, Job, build, kernel_name, make_job
from tilec.inprocess.compilation.keys import kernel_key, own_digest
from tilec.inprocess.kernel import JITKernel
from tilec.inprocess.options import Options
from tilec.ir.guards import Guard
from tilec.ir.options import IMPORTED, options_of
from tilec.language.frontend.compile_options import merged_configs
from tilec.language.frontend.jitted import JitFunction
from tilec.targets import parse_target

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel
    from tilec.language.frontend.elaborate import Traced


@dataclass(frozen=True)
class Request:
    """``entry`` is a prim_func or a jitted function, ``arguments`` its compile-time arguments, ``constants``
    the values of its T.const by name."""

    entry: Any
    arguments: Mapping[str, Any]
    constants: Mapping[str, int]
    options: Options

    @property
    def name(self) -> str:
        """The kernel's."""
        return kernel_name(self.entry.captured.name)

    def prim_func(self) -> Any:
        """What a factory returns for these arguments, an eager function bound to them, or the prim_func."""
        if not isinstance(self.entry, JitFunction):
            return self.entry
        return self.entry.func(**self.arguments) if self.entry.is_lazy_mode() else BoundKernel(self)

    def elaborate(self) -> Elaborated:
        """The tile IR. Raises SourceError."""
        from tilec.language.frontend.elaborate import trace
        from tilec.language.frontend.programs import ScalarSizesTensorError

        dims = {name: Guard(eq=value) for name, value in self.constants.items()}
        sizes: list[str] = []
        out_idx = self.options.out_idx
        while True:
            try:
                found = trace(
                    self.entry,
                    name=self.name,
                    dims=dims,
                    args=self.arguments,
                    config=self._config(),
                    out_idx=out_idx,
                    open_dims=True,
                )
            except ScalarSizesTensorError as error:
                sizes.append(error.scalar)
                dims[error.scalar] = Guard()
                out_idx = _without(sizes, error.parameters, self.options.out_idx)
                continue
            found.warn()
            return self._elaborated(found, sizes)

    def _config(self) -> dict[str, Any]:
        """The pass configs, which diagnostics ask for; a parameter of that name is the kernel's own."""
        named = "pass_configs" in self.arguments
        return {} if named else {"pass_configs": dict(self.options.pass_configs)}

    def _elaborated(self, found: Traced, sizes: list[str]) -> Elaborated:
        """With the parameters of Python callers, and the outputs in the order in which they get them."""
        kernel, names = found.kernel, found.parameters
        self._check_bound(kernel, sizes)
        params = {param.name for param in kernel.params}
        order = tuple((name, name in sizes) for name in names if name in params or name in sizes)
        made = tuple(param.name for param in kernel.params if getattr(param, "output", False))
        indices = self.options.out_idx
        if isinstance(indices, int) or not indices:
            returned = made
        else:
            returned = tuple(order[index][0] for index in indices)
        configs = merged_configs(found.pass_configs, self.options.pass_configs)
        flags = (*found.own_flags, *self.options.flags)
        imported = dict(kernel.options).get(IMPORTED, "")
        kernel = replace(kernel, options=options_of(configs, flags, imported))
        return Elaborated(kernel, order, returned, configs, flags)

    def _check_bound(self, kernel: Kernel, sizes: Sequence[str]) -> None:
        """Calls in process give dims by tensors and scalars alone."""
        from tilec.package.bindings.binds import bind_dims
        from tilec.package.model import KernelRecord, signature

        about = signature(kernel)
        record = KernelRecord(kernel.name, about.params, about.dims, ())
        for dim, binds in zip(kernel.dims, bind_dims(record), strict=True):
            shown = any(not about.params[bind.param].output for bind in binds)
            if dim.var is not None and not shown and dim.name not in sizes:
                raise SourceValueError(
                    f"no argument of {self.name} says what {dim.name} is",
                    place=self.entry.captured.place,
                    why="no tensor that is passed has it as an extent or a stride",
                    remedy=f"use it alone in a shape, or make it a parameter, {dim.name}: T.int32",
                )

    @cached_property
    def made(self) -> Elaborated:
        """As `elaborate`, once. Raises EnvironmentError_ where TVM is missing, too."""
        return _elaborated_or_refused(self)

    @cached_property
    def early_key(self) -> str | None:
        """The key by sources and arguments; None if they do not tell."""
        about = {"constants": dict(self.constants), "out_idx": self.options.out_idx}
        target = {"target": self.options.target.name}
        options = {**about, **target, **self.options.identity}
        return kernel_key(self.entry.captured, self.arguments, options)


@dataclass(frozen=True)
class BoundKernel:
    """A jitted function with its arguments; its text is the tile IR."""

    request: Request

    def __str__(self) -> str:
        """The tile IR."""
        return self.script()

    def script(self) -> str:
        """The tile IR as text."""
        from tilec.ir.text.printer import format_kernel

        return format_kernel(self.request.elaborate().kernel)


def _without(sizes: Sequence[str], names: Sequence[str], out_idx: Any) -> Any:
    """``out_idx`` over the parameters ``names`` as one over those that are not in ``sizes``."""
    if out_idx is None:
        return None
    kept = [name for name in names if name not in sizes]
    chosen = [names[index] for index in ([out_idx] if isinstance(out_idx, int) else out_idx)]
    return [kept.index(name) if name in kept else len(names) for name in chosen]


@dataclass(frozen=True)
class Elaborated:
    """A kernel, and what its Python callers see: ``order`` and ``returned`` of `Card`; the options of the
    compiler."""

    kernel: Kernel
    order: tuple[tuple[str, bool], ...]
    returned: tuple[str, ...]
    pass_configs: dict[str, Any]
    compile_flags: tuple[str, ...]


# ---- one ----


def compile_request(request: Request) -> JITKernel:
    """The kernel, from the cache if it is there. Raises SourceError, CompileError and EnvironmentError_."""
    start = time.monotonic()
    kernel = known_kernel(request, start)
    if kernel is not None:
        return kernel
    key, job = planned(request)
    kernel = late_kernel(request, key, start)
    if kernel is not None:
        return kernel

    def done(stage: str) -> None:
        _say(request, f"{stage} of {request.name}", start)

    done("elaborated the code")
    card = build(job, request.made.kernel, done)
    store.keep(key, card, job.path)
    return finish(request, (card, job.path), "compiled", start)


def known_kernel(request: Request, start: float) -> JITKernel | None:
    """The kernel, if the cache has it under the key that needs no compiler."""
    found = _find(request.early_key)
    return None if found is None else finish(request, found, "loaded", start)


def late_kernel(request: Request, key: str, start: float) -> JITKernel | None:
    """The kernel, if the cache has it under the key that only its tile IR tells."""
    found = None if request.early_key else _find(key)
    return None if found is None else finish(request, found, "loaded", start)


def planned(request: Request) -> tuple[str, Job]:
    """The key of a kernel that is not in the cache, and how to build it. Raises SourceError."""
    made = request.made
    key = request.early_key or _late_key(request, made)
    return key, _job(request, made, store.library_path(key))


def _find(key: str | None) -> tuple[Card, Path] | None:
    return store.find(key) if key is not None and store.is_cache_enabled() else None


def _elaborated_or_refused(request: Request) -> Elaborated:
    """Raises EnvironmentError_ where TVM is missing, so that the cache would have to have the kernel."""
    try:
        return request.elaborate()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "tvm":
            raise
        raise EnvironmentError_(
            f"kernel {request.name} for {request.options.target.name} is not in the cache",
            place=request.entry.captured.place,
            why="compiling it needs TVM, which is not installed here",
            remedy="fill the cache on a machine with tilec and its dependencies, or pip install apache-tvm",
        ) from error


def _late_key(request: Request, made: Elaborated) -> str:
    job = _job(request, made, Path())
    return digest(own_digest(), job.ir_text, job.target, repr(job.order), repr(job.returned))


def _job(request: Request, made: Elaborated, path: Path) -> Job:
    return make_job(made.kernel, request.options.target.name, made.order, made.returned, path)


def finish(request: Request, found: tuple[Card, Path], how: str, start: float) -> JITKernel:
    """The kernel of a library with its card; says so where the request wants that."""
    card, path = found
    vars(request).pop("made", None)  # it is large, and will not be asked for again
    _say(request, f"{how} {card.kernel} for {card.target}", start)
    if request.options.debug is not None:
        _write_sources(card, request.options.debug)
    return JITKernel(card, path, request.options.given, request.prim_func)


def _say(request: Request, what: str, start: float) -> None:
    if request.options.verbose:
        sys.stderr.write(f"tilec: {what} in {time.monotonic() - start:.2f} s\n")


def _write_sources(card: Card, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    suffix = backend_of(parse_target(card.target)).source_suffix(card.device_source)
    for name, text in (
        (f"{card.package}{suffix}", card.device_source),
        (f"{card.package}_host.c", card.host_source),
        (f"{card.package}.txt", card.ir_text),
    ):
        (folder / name).write_text(text, encoding="utf-8")
