"""A compiled kernel: a call that checks, launches and returns outputs, and what else is known of it."""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilec.backends.base import backend_of
from tilec.errors import SourceValueError
from tilec.families import family_of
from tilec.inprocess.calls.fast_calls import fast_call, unless_negated
from tilec.inprocess.calls.stand_ins import filled_in, untouched
from tilec.inprocess.compilation.building import Card
from tilec.inprocess.params import KernelParam, kernel_params
from tilec.language.frontend.pass_configs import by_text
from tilec.portable.loader import Kernel, LaunchError, default_of, load
from tilec.spelling import counted
from tilec.targets import parse_target

if TYPE_CHECKING:
    from tilec.inprocess.measuring.profiler import Profiler


class JITKernel:
    """What `compile` and a called factory return. A call takes the parameters in order without those in
    ``out_idx``, as torch tensors, NumPy arrays or anything with DLPack, and returns the outputs: a tensor, a
    list of several, [] for none. On CUDA it runs on torch's current stream and does not wait.

    ``params``: all parameters; ``out_idx``: indices of the returned ones; ``latency``, ``config``,
    ``ref_latency``: what tuning said."""

    def __init__(
        self, card: Card, path: Path, options: Mapping[str, Any], prim_func: Callable[[], Any] | None = None
    ) -> None:
        self._card, self._path = card, path
        self._kernel: Kernel = load(path).kernels[card.kernel]
        self._names = tuple(name for name, _ in card.order)
        self._sizes = frozenset(name for name, sizes in card.order if sizes)
        self._inputs = tuple(name for name in self._names if name not in card.returned)
        self._defaults = {
            each["name"]: default_of(each)
            for each in self._kernel.metadata["params"]
            if each["default"] is not None
        }
        self.params: list[KernelParam] = kernel_params(card, self._kernel.metadata)
        self.out_idx = [self._index(name) for name in card.returned]
        self._make_prim_func = prim_func
        self.target = parse_target(card.target)
        self.target_host = options.get("target_host")
        self.execution_backend = options.get("execution_backend") or "tilec"
        self.pass_configs = dict(options.get("pass_configs") or {})
        self.compile_flags = options.get("compile_flags")
        self.latency: float | None = None
        self.ref_latency: float | None = None
        self.config: Mapping[str, Any] | None = None
        self.artifact = self.adapter = self
        tensors = {param.name for param in self.params if not param.is_scalar()}
        #: The first argument that is a tensor decides how a call goes; calls by its type.
        self._first = next((at for at, name in enumerate(self._inputs) if name in tensors), None)
        self._calls: dict[type, Callable[..., Any]] = {}

    def __repr__(self) -> str:
        return f"<JITKernel {self._card.kernel}({', '.join(self._kernel.signature)}) for {self.target.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies, and processes that this is sent to, open the same file; they know no ``prim_func``."""
        options = {"pass_configs": by_text(self.pass_configs), "compile_flags": self.compile_flags}
        tuned = {name: getattr(self, name) for name in ("latency", "ref_latency", "config")}
        return type(self), (self._card, self._path, options), tuned

    # ---- calls ----

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Runs the kernel. Raises ValueError (shapes, layouts, devices, wrong number of arguments) and
        TypeError (kinds, dtypes) before anything runs, and RuntimeError for what the device says."""
        if named or self._first is None or len(args) <= self._first:
            return self._call(*args, **named)
        kind = type(args[self._first])
        call = self._calls.get(kind)
        if call is None:
            call = self._calls[kind] = self._call_for(kind)
        return call(*args)

    @property
    def torch_function(self) -> Callable[..., Any]:
        """The call."""
        return self.__call__

    def _call_for(self, kind: type) -> Callable[..., Any]:
        """The shortest way of calls with tensors of a type. Scalars that size tensors are read from the
        shapes by the tvm-ffi door, which would not compare them, and it takes no addresses."""
        if self._sizes or self._kernel._pointers:
            return self._call
        params = self._kernel.metadata["params"]
        made = [each["name"] for each in params if each["output"]]
        places = [made.index(name) for name in self._card.returned]
        function = f"{self._card.package}_{self._card.kernel}"
        call = fast_call(self._path, function, len(self._inputs), places, kind, self._call)
        return unless_negated(call, self._call) if any(each["strides"] for each in params) else call

    def _call(self, *args: Any, **named: Any) -> Any:
        """Through the loader: every kind of argument."""
        values = self._bound(args, named)
        if any(value is None for value in values.values()):
            values = filled_in(values, self.params, self._untouched, family_of(self.target).device)
        if self._first is None or isinstance(values.get(self._inputs[self._first]), int):
            self._kernel.like = self._torch_tensor()
        made = self._kernel(**values)
        if len(self._card.returned) < 2:
            return [] if made is None else made
        outputs = [name for name in self._kernel._names if name not in values]
        by_name = dict(zip(outputs, made, strict=True))
        return [by_name[name] for name in self._card.returned]

    def _torch_tensor(self) -> Any:
        """A tensor on this kernel's device, which outputs of calls without arrays are like; None where torch
        is not loaded."""
        torch = sys.modules.get("torch")
        return None if torch is None else torch.empty(0, device=family_of(self.target).device)

    def _bound(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        values = dict(zip(self._inputs, args, strict=False))
        self._refuse_names(values, named)
        missing = [
            name for name in self._inputs[len(args) :] if name not in named and name not in self._defaults
        ]
        if len(args) > len(self._inputs) or missing:
            made = ", ".join(self._card.returned)
            expected = counted(len(self._inputs), "input")
            raise ValueError(
                f"{self._card.kernel}: expected {expected}, got {len(args) + len(named)}: "
                f"{', '.join(self._inputs)}" + (f"; a call makes and returns {made}" if made else "")
            )
        return {**values, **named}

    def _refuse_names(self, values: Mapping[str, Any], named: Mapping[str, Any]) -> None:
        for name in named:
            if name not in self._inputs or name in values:
                problem = "was given twice" if name in values else "is no input"
                raise TypeError(f"{self._card.kernel}: {name!r} {problem}; inputs: {', '.join(self._inputs)}")

    def _index(self, name: str) -> int:
        if name in self._names:
            return self._names.index(name)
        made = [each for each in self._card.returned if each not in self._names]
        return len(self._names) + made.index(name)

    # ---- what it was made of ----

    @functools.cached_property
    def _untouched(self) -> frozenset[str]:
        """Tensors that the kernel does not touch."""
        return untouched(self.params, self._card.ir_text)

    @functools.cached_property
    def prim_func(self) -> Any:
        """The prim_func that was compiled, or the eager function with its arguments; `compile` takes both."""
        return self._make_prim_func() if self._make_prim_func is not None else None

    def get_kernel_source(self, kernel_only: bool = True) -> str:
        """The source of the device code: CUDA C++, or C for a CPU; with the host's too if not
        ``kernel_only``."""
        return self.kernel_source if kernel_only else f"{self.kernel_source}\n{self.host_source}"

    def get_host_source(self) -> str:
        """The C that dispatches and launches."""
        return self.host_source

    @property
    def source(self) -> str:
        """As `get_kernel_source`."""
        return self.kernel_source

    @property
    def wrapped_source(self) -> str:
        """As `get_host_source`."""
        return self.host_source

    @functools.cached_property
    def kernel_source(self) -> str:
        """As `get_kernel_source`."""
        return self._card.device_source

    @property
    def host_source(self) -> str:
        """As `get_host_source`."""
        return self._card.host_source

    @property
    def n_regs(self) -> int | None:
        """Registers per thread of the first launch; None for a CPU."""
        return self._gpu("registers")

    @property
    def n_spills(self) -> int | None:
        """Bytes per thread that the first launch keeps in local memory for want of registers."""
        return self._gpu("spills")

    @property
    def lib_path(self) -> Path:
        """The library."""
        return self._path

    def show_source(self, which: str = "kernel") -> None:
        """Prints the "kernel", the "host" source or "both"."""
        sys.stdout.write("\n".join(self._sources(which)) + "\n")

    def print_source_code(self, which: str = "kernel", file: Any = None) -> None:
        """`show_source` under its former name; with ``file``, the source goes there."""
        if file is None:
            self.show_source(which)
        else:
            Path(file).write_text("\n".join(self._sources(which)), encoding="utf-8")

    def export_sources(self, kernel_path: Any = None, host_path: Any = None) -> None:
        """Writes the sources to files. Raises ValueError if neither is named."""
        if kernel_path is None and host_path is None:
            raise SourceValueError("export_sources got no path", remedy="give kernel_path or host_path")
        for path, text in ((kernel_path, self.kernel_source), (host_path, self.host_source)):
            if path is not None:
                Path(path).write_text(text, encoding="utf-8")

    def export_library(self, path: Any) -> None:
        """Copies the library, which `tilec.load` and C programs open."""
        shutil.copyfile(self._path, path)

    def show_ptx(self) -> None:
        """Prints the PTX of a CUDA kernel; needs what compiled it. Raises ValueError for a CPU."""
        sys.stdout.write(self._ptx())

    def export_ptx(self, path: Any) -> None:
        """Writes the PTX of a CUDA kernel to a file, as `show_ptx`."""
        Path(path).write_text(self._ptx(), encoding="utf-8")

    def _ptx(self) -> str:
        from tilec.build.written.disassembly import assembly_of

        self._check_listing("PTX")
        return assembly_of(self._widest, self._card.ir_text)

    def show_sass(self) -> None:
        """Prints the machine code of a CUDA kernel, which nvdisasm or cuobjdump reads. Raises ValueError for
        a CPU, EnvironmentError_ where neither is installed."""
        sys.stdout.write(self._sass())

    def export_sass(self, path: Any) -> None:
        """Writes the machine code of a CUDA kernel to a file, as `show_sass`."""
        Path(path).write_text(self._sass(), encoding="utf-8")

    def _sass(self) -> str:
        from tilec.inprocess.sass import sass_of
        from tilec.package.library.inspect import read_library

        self._check_listing("SASS")
        image = self._widest["image"]
        return sass_of(read_library(self._path).image(self.target.family, image["sha256"], image["bytes"]))

    def _check_listing(self, what: str) -> None:
        """Raises ValueError where the target's code cannot be read so."""
        backend = backend_of(self.target)
        if what not in backend.listings:
            raise SourceValueError(
                f"a kernel for a {backend.word} has no {what}", remedy="use get_kernel_source()"
            )

    def _sources(self, which: str) -> list[str]:
        found = {"kernel": [self.kernel_source], "host": [self.host_source]}
        found["both"] = [*found["kernel"], *found["host"]]
        if which not in found:
            raise SourceValueError(f"no source {which!r}", remedy='write "kernel", "host" or "both"')
        return found[which]

    @property
    def _widest(self) -> Mapping[str, Any]:
        """The variant that serves every call, as the metadata have it."""
        found: Mapping[str, Any] = self._kernel.metadata["variants"][-1]
        return found

    def _gpu(self, what: str) -> int | None:
        launches = self._widest["launches"]
        value = launches[0].get("gpu", {}).get(what)
        return None if value is None else int(value)

    # ---- measuring ----

    def get_profiler(self, tensor_supply_type: Any = None) -> Profiler:
        """A `Profiler` that supplies inputs of a kind (default: TensorSupplyType.Auto)."""
        from tilec.inprocess.measuring.inputs import TensorSupplyType
        from tilec.inprocess.measuring.profiler import Profiler

        supply = TensorSupplyType.Auto if tensor_supply_type is None else tensor_supply_type
        return Profiler(self.params, self.out_idx, supply, self)

    def run_once(self, func: Callable[..., Any] | None = None) -> Any:
        """One call of ``func`` (default: the kernel) on supplied inputs."""
        return self.get_profiler().run_once(func)

    def bench(self, *args: Any, **options: Any) -> Any:
        """Milliseconds of a call on these arguments, as `do_bench`."""
        from tilec.inprocess.measuring.bench import do_bench

        return do_bench(lambda: self(*args), **options)

    def update_tuner_result(
        self, latency: float, config: Mapping[str, Any], ref_latency: float | None = None
    ) -> JITKernel:
        """Records what tuning found."""
        self.latency, self.config, self.ref_latency = latency, config, ref_latency
        return self

    def get_tuner_result(self) -> dict[str, Any]:
        """What `update_tuner_result` recorded; ValueError before."""
        if self.latency is None:
            raise SourceValueError("the kernel was not tuned", remedy="call it under tilec.autotune")
        return {"latency": self.latency, "config": self.config, "ref_latency": self.ref_latency}


__all__ = ["JITKernel", "LaunchError"]
