"""One kernel, the same results everywhere: interpreter, compiled CPU code, emulated CUDA code.

With ``pytest tests/constructs -p no:xdist --cuda-cases DIR`` every case is kept as well, in a folder that
checks it on a machine with a GPU: ``python3 run.py --only verify`` there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from construct_cases import CudaCases

from tilec.backends.cuda.emit.entry import lower_kernel
from tilec.backends.pipeline import lower
from tilec.emulate import EmulatedKernel
from tilec.inprocess.compilation import building
from tilec.inprocess.compilation.request import Request
from tilec.ir.guards import Guard
from tilec.ir.interp import interpreter
from tilec.ir.interp.values import cast, numpy_dtype, undefined
from tilec.ir.nodes import Kernel, TensorParam
from tilec.ir.roads import Road
from tilec.language.frontend.elaborate import elaborate
from tilec.language.frontend.jitted import JitFunction
from tilec.language.frontend.programs import PrimFunc
from tilec.portable import loader
from tilec.targets import native_target, parse_target
from tilec.trials.comparison import Tolerance, compare, default_tolerance
from tilec.trials.oracle import Expectation

TARGETS = ("cpu", "sm_80", "sm_90a")

#: Filled by `--cuda-cases`.
cuda_cases: CudaCases | None = None


def roads(
    kernel: Any, *inputs: Any, dims: Mapping[str, int | Guard] | None = None, target: str = "sm_80"
) -> tuple[Road, ...]:
    """How the statements of a kernel's one launch go on a GPU; arguments as those of `agree`."""
    chip = parse_target(target)
    (launch,) = lower_kernel(lower(elaborated(kernel, inputs, dims, {}, {}), chip), chip).launches
    return launch.roads


def agree(
    kernel: Any,
    *inputs: Any,
    dims: Mapping[str, int | Guard] | None = None,
    args: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    expected: Any = None,
    targets: Sequence[str] = TARGETS,
    rtol: float | None = None,
    atol: float | None = None,
    interpreted: bool = True,
) -> list[np.ndarray]:
    """Runs ``kernel`` on every road and returns its outputs, as the interpreter makes them.

    ``kernel`` is a prim_func, a factory or an eager function. ``inputs``: an array or a number for every
    parameter that the kernel reads, or that it updates, in order; tensors that are written without being read
    are made here. Without ``dims`` constants come from the arrays, as in a call; with them integers are
    compiled in, other guards leave a dim to run time. ``args`` and ``config`` are compile-time parameters.
    ``expected``: an array per written tensor, in order (one alone as it is). Without
    ``interpreted`` all is compared with that alone, for kernels that the interpreter cannot run. Tolerances
    are those that ``tilec verify`` has for the kernel's types."""
    made = elaborated(kernel, inputs, dims, args or {}, config or {})
    case = _Case(made, inputs, Tolerance(*_bounds(made, rtol, atol)))
    wanted = list(expected) if isinstance(expected, (list, tuple)) else [expected]
    found = case.interpreted() if interpreted else [np.asarray(value) for value in wanted]
    if expected is not None:
        case.check("the interpreter", found, [np.asarray(value) for value in wanted])
    for target in targets:
        case.check(target, case.compiled() if target == "cpu" else case.emulated(target), found)
    if cuda_cases is not None and any(target != "cpu" for target in targets):
        cuda_cases.add(made, case.dims, case.expectation(found), case.tolerance)
    return found


def build(kernel: PrimFunc) -> Kernel:
    """The tile IR of a prim_func whose dims are open."""
    return elaborate(kernel, name="k", dims={}, args={}, config={}, open_dims=True)


def numbers(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Whole numbers from -9 to 9."""
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(dtype)


def halves(*shape: int, seed: int = 0, most: int = 9) -> np.ndarray:
    """Whole numbers of float16 from -``most`` to ``most``."""
    return np.random.default_rng(seed).integers(-most, most + 1, shape).astype("float16")


def elaborated(
    kernel: Any,
    inputs: Sequence[Any],
    dims: Mapping[str, int | Guard] | None,
    args: Mapping[str, Any],
    config: Mapping[str, Any],
) -> Kernel:
    """The tile IR of any form of a kernel."""
    given = {**args, **config}
    if dims is not None or not isinstance(kernel, (JitFunction, PrimFunc)):
        guards = {
            name: Guard(eq=int(value)) if isinstance(value, int) else value
            for name, value in (dims or {}).items()
        }
        return elaborate(kernel, name="kernel", dims=guards, args=args, config=config, open_dims=True)
    if isinstance(kernel, PrimFunc):
        return elaborate(kernel, name="kernel", dims={}, args={}, config=config, open_dims=True)
    request: Request = kernel._request(() if kernel.is_lazy_mode() else inputs, given)  # type: ignore[attr-defined]
    return request.elaborate().kernel


def _bounds(kernel: Kernel, rtol: float | None, atol: float | None) -> tuple[float, float]:
    types = {str(param.buffer.dtype) for param in kernel.params if isinstance(param, TensorParam)}
    usual = default_tolerance(types)
    return (usual.rtol if rtol is None else rtol, usual.atol if atol is None else atol)


class _Case:
    """A kernel with its arguments, fresh ones for every road."""

    def __init__(self, kernel: Kernel, inputs: Sequence[Any], tolerance: Tolerance) -> None:
        self.kernel, self.tolerance = kernel, tolerance
        self._inputs = _named(kernel, inputs)
        self.dims = _dims(kernel, self._inputs)
        tensors = [param for param in kernel.params if isinstance(param, TensorParam)]
        self.written = [param.name for param in tensors if param.access != "in"]

    def fresh(self) -> dict[str, Any]:
        """The arguments by name in kernel order; tensors that are only written hold nothing of use."""
        return {param.name: self._argument(param) for param in self.kernel.params}

    def _argument(self, param: Any) -> Any:
        if not isinstance(param, TensorParam):
            return self._inputs[param.name]
        dtype = numpy_dtype(str(param.buffer.dtype))
        if param.name in self._inputs:
            return _copied(self._inputs[param.name], dtype)
        values = {str(name): value for name, value in self.dims.items()}
        return undefined(tuple(loader.evaluate_size(text, values) for text in param.extents), dtype)

    def interpreted(self) -> list[np.ndarray]:
        """By the reference meaning of tile IR."""
        args = self.fresh()
        interpreter.run(self.kernel, list(args.values()), self.dims)
        return [args[name] for name in self.written]

    def compiled(self) -> list[np.ndarray]:
        """By machine code of this CPU, through the loader."""
        args = self.fresh()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernel.so"
            building.build(building.make_job(self.kernel, native_target().name, (), (), path), self.kernel)
            function = loader.load(path).kernels[self.kernel.name]
            free = {name: value for name, value in self.dims.items() if name not in args}
            function(**args, **free)
        return [args[name] for name in self.written]

    def emulated(self, target: str) -> list[np.ndarray]:
        """By device code on the emulator."""
        args = self.fresh()
        EmulatedKernel(self.kernel, parse_target(target))(list(args.values()), self.dims)
        return [args[name] for name in self.written]

    def expectation(self, outputs: Sequence[np.ndarray]) -> Expectation:
        """The inputs, and what the written tensors hold at the end."""
        fresh = self.fresh()
        values = {name: fresh[name] for name in self._inputs}
        return Expectation(values, dict(zip(self.written, outputs, strict=True)))

    def check(self, road: str, got: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> None:
        """Fails where results differ."""
        assert len(got) == len(wanted), f"{len(got)} tensors are written, {len(wanted)} were expected"
        for name, left, right in zip(self.written, got, wanted, strict=True):
            problem = compare(name, left, np.broadcast_to(right, left.shape), self.tolerance).text
            assert not problem, f"{road}: {problem}"


def _named(kernel: Kernel, inputs: Sequence[Any]) -> dict[str, Any]:
    sizes = {dim.name for dim in kernel.dims}
    taken = [
        param.name
        for param in kernel.params
        if not (isinstance(param, TensorParam) and (param.output or param.access == "out"))
        and param.name not in sizes
    ]
    assert len(taken) == len(inputs), f"inputs are {', '.join(taken)}, got {len(inputs)}"
    return dict(zip(taken, inputs, strict=True))


def _copied(value: Any, dtype: np.dtype) -> np.ndarray:
    """As laid out, in memory of its own."""
    array = np.asarray(value)
    made = array.copy(order="K") if array.dtype == dtype else np.asarray(cast(array, dtype))
    return made if array.flags.c_contiguous or array.dtype != dtype else _with_strides(array)


def _with_strides(array: np.ndarray) -> np.ndarray:
    span = 1 + sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) // array.itemsize
    memory = np.zeros(max(span, 1), array.dtype)
    made = np.lib.stride_tricks.as_strided(memory, array.shape, array.strides)
    made[...] = array
    return made


def _dims(kernel: Kernel, inputs: Mapping[str, Any]) -> dict[str, int]:
    """Of pinned dims and, where a dim is an extent or a stride of an input, of that."""
    found = {dim.name: dim.guard.eq for dim in kernel.dims if dim.guard.eq is not None}
    for param in kernel.params:
        if not isinstance(param, TensorParam) or param.name not in inputs:
            continue
        array = np.asarray(inputs[param.name])
        steps = [step // array.itemsize for step in array.strides]
        for text, value in zip(
            (*param.extents, *(param.strides or ())), (*array.shape, *steps), strict=False
        ):
            if text.isidentifier():
                found.setdefault(text, int(value))
    return {name: int(value) for name, value in found.items()}
