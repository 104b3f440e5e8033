"""Compiles elementwise functions for a target and runs them on arrays."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tilec.backends.cpu.codegen.objects import compile_kernel
from tilec.codegen.linkers import SharedLibrary
from tilec.codegen.toolchain import find_toolchain
from tilec.lowering.lowered import LoweredKernel, LoweredLaunch
from tilec.targets import Host, Target, parse_target

LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4+vnni+avx512bf16")


def elementwise(function: str, dtype: str = "float32", lanes: int = 16, arity: int = 1) -> Any:
    """A TIR function out[i] = function(x[i][, y[i]]) over n elements, n a multiple of ``lanes``."""
    return map_function(lambda *arguments: apply(function, list(arguments)), dtype, dtype, lanes, arity)


def map_function(
    function: Callable[..., Any], source: str, result: str, lanes: int = 16, arity: int = 1
) -> Any:
    """As `elementwise`, for a function of expressions from dtype ``source`` to dtype ``result``."""
    from tvm import tirx
    from tvm.ir import PointerType, PrimType

    names = [*("x", "y")[:arity], "out"]
    dtypes = [source] * arity + [result]
    count = tirx.Var("n", "int64")
    typed = list(zip(names, dtypes, strict=True))
    handles = [tirx.Var(f"{name}_ptr", PointerType(PrimType(dtype))) for name, dtype in typed]
    buffers = [tirx.decl_buffer((count,), dtype, name) for name, dtype in typed]
    pairs = zip(buffers, handles, strict=True)
    declared = [tirx.DeclBuffer(buffer, data=handle) for buffer, handle in pairs]
    trip = tirx.Var("trip", "int64")
    first = trip * tirx.const(lanes, "int64")
    index = first if lanes == 1 else tirx.Ramp(first, tirx.const(1, "int64"), lanes)
    arguments = [tirx.BufferLoad(buffer, [index]) for buffer in buffers[:-1]]
    store = tirx.BufferStore(buffers[-1], function(*arguments), [index])
    extent = tirx.truncdiv(count, tirx.const(lanes, "int64"))
    loop = tirx.For(trip, tirx.const(0, "int64"), extent, tirx.ForKind.SERIAL, store)
    return tirx.PrimFunc([*handles, count], tirx.SeqStmt([*declared, loop]))


def apply(function: str, arguments: list[Any]) -> Any:
    """``function`` as TVM's operator of that name."""
    from tvm import tirx

    if function == "copy":
        return arguments[0]
    if function == "square_plus":
        return arguments[0] * arguments[0] + arguments[0]
    return getattr(tirx, function)(*arguments)


def lowered(*functions: Any) -> LoweredKernel:
    """TIR functions as the launches of one kernel."""
    return LoweredKernel("demo", tuple(LoweredLaunch(function, ("1",), (1, 1, 1)) for function in functions))


def link(code: bytes, folder: Path, host: Host) -> Path:
    """A shared library of one object that exports everything."""
    (folder / "code.o").write_bytes(code)
    find_toolchain(host).link_shared([folder / "code.o"], SharedLibrary(folder / "lib.so", "lib.so", "*"))
    return folder / "lib.so"


class Compiled:
    """The launches of one kernel, loaded; ``run`` calls launch ``index`` on equal-sized arrays."""

    def __init__(self, kernel: LoweredKernel, target: Target) -> None:
        self._folder = tempfile.TemporaryDirectory()
        image = compile_kernel(kernel, target, "demo")
        self._library = ctypes.CDLL(str(link(image.code, Path(self._folder.name), Host(target.arch, "2.17"))))

    def run(self, index: int, *inputs: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        out = np.empty_like(inputs[0]) if out is None else out
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*inputs, out)]
        getattr(self._library, f"demo_{index}")(*pointers, ctypes.c_int64(out.size))
        return out


class Functions:
    """Elementwise functions compiled together for one target: ``functions("exp", x)``."""

    def __init__(self, level: str, names: tuple[str, ...], lanes: int, dtype: str, arity: int) -> None:
        bodies = [elementwise(name, dtype, lanes, arity) for name in names]
        self._names = names
        self._lanes = lanes
        self._compiled = Compiled(lowered(*bodies), parse_target(level))

    def __call__(self, name: str, *inputs: np.ndarray) -> np.ndarray:
        size = inputs[0].size
        padding = -size % self._lanes
        padded = [np.ascontiguousarray(np.pad(array, (0, padding), mode="edge")) for array in inputs]
        return self._compiled.run(self._names.index(name), *padded)[:size]


@cache
def functions(
    level: str, names: tuple[str, ...], lanes: int = 16, dtype: str = "float32", arity: int = 1
) -> Functions:
    """Compiled once per process."""
    return Functions(level, names, lanes, dtype, arity)


def ulp_error(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Distance to the float64 values ``want`` in units in the last place of float32 (of the smallest
    denormal near 0); 0 where both are the same infinity or both NaN."""
    with np.errstate(over="ignore"):
        rounded = want.astype(np.float32)
    same = (got == rounded) | (np.isnan(got) & np.isnan(want))
    magnitude = np.clip(np.abs(rounded), np.finfo(np.float32).tiny, np.float32(2.0**127))
    spacing = np.spacing(magnitude).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(same, 0.0, np.abs(got.astype(np.float64) - want) / spacing)
