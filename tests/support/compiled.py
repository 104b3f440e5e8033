"""Compiles tile IR given as text and runs it on NumPy arrays through its C entries."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from told import told
from variant_code import compile_variant

from tilec.codegen.image import Image
from tilec.codegen.linkers import SharedLibrary
from tilec.codegen.toolchain import find_toolchain
from tilec.ir.nodes import Kernel, ScalarParam, TensorParam
from tilec.ir.text.parser import parse_kernel
from tilec.sizes import evaluate_size
from tilec.targets import Host, Target, parse_target, runs_here

LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")

_ALIGNMENT = 64
#: In place of the runtime: whatever may be written past the last cache is.
_RUNTIME = "long long tilec_last_cache_bytes(void) { return 0; }"
_SCALARS = {"float16": "float", "bfloat16": "float", "float32": "float", "float64": "double", "bool": "int32"}


def numpy_type(name: str) -> np.dtype:
    """The NumPy dtype of a dtype name."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


class Library:
    """Kernels compiled for one target and linked into one shared library; arguments are checked as little as
    in C. Each entry is run in two pieces, as two workers would, or as a whole."""

    def __init__(self, kernels: Mapping[str, str | Kernel], level: str | Target) -> None:
        self.target = parse_target(level) if isinstance(level, str) else level
        self.kernels: dict[str, Kernel] = {
            name: parse_kernel(kernel) if isinstance(kernel, str) else kernel
            for name, kernel in kernels.items()
        }
        self.images: dict[str, Image] = {
            name: compile_variant(kernel, self.target, f"k_{name}") for name, kernel in self.kernels.items()
        }
        with tempfile.TemporaryDirectory() as folder:
            self._library = ctypes.CDLL(str(self._link(Path(folder))))

    def _link(self, folder: Path) -> Path:
        objects = []
        for name, image in self.images.items():
            objects.append(folder / f"{name}.o")
            objects[-1].write_bytes(image.code)
        objects.append(folder / "runtime.o")
        objects[-1].write_bytes(_runtime(self.target.arch))
        toolchain = find_toolchain(Host(self.target.arch, "2.17"))
        toolchain.link_shared(objects, SharedLibrary(folder / "lib.so", "lib.so", "*"))
        return folder / "lib.so"

    def notes(self, name: str) -> tuple[str, ...]:
        """The notes of the first launch, and the roads of its statements as lines."""
        return tuple(told(self.images[name].launches[0]))

    def run(self, name: str, args: Sequence[object], dims: Mapping[str, int], pieces: int = 2) -> None:
        """Runs every launch of ``name``; arrays and scalars in kernel order, outputs in place. Skips the test
        on a machine that lacks what the target has."""
        if not runs_here(self.target):
            pytest.skip(f"this machine does not run {self.target.name}")
        kernel, image = self.kernels[name], self.images[name]
        values = {dim.name: dims.get(dim.name, dim.guard.eq) for dim in kernel.dims}
        named = {**values, **_scalars(kernel, args)}
        workspace = [_aligned(evaluate_size(item.bytes, named)) for item in image.workspace]
        for launch in image.launches:
            self._launch(launch, [*_arguments(kernel, args, workspace), *_dims(values)], named, pieces)

    def _launch(self, launch: object, args: list[object], named: Mapping[str, int], pieces: int) -> None:
        scratch = _aligned(launch.scratch_bytes)
        blocks = int(np.prod([evaluate_size(text, named) for text in launch.grid]))
        edges = [blocks * piece // pieces for piece in range(pieces + 1)]
        for begin, end in pairwise(edges):
            entry = getattr(self._library, launch.symbol)
            entry(*args, _pointer(scratch), ctypes.c_int64(begin), ctypes.c_int64(end))


@cache
def _runtime(arch: str) -> bytes:
    """The object of what stands in place of the runtime."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "runtime.c"
        source.write_text(_RUNTIME)
        made = find_toolchain(Host(arch, "2.17")).compile(source, source.parent)
        return made.read_bytes()


def _scalars(kernel: Kernel, args: Sequence[object]) -> dict[str, int]:
    return {
        str(param.var.name): arg
        for param, arg in zip(kernel.params, args, strict=True)
        if isinstance(param, ScalarParam)
    }


def _arguments(kernel: Kernel, args: Sequence[object], workspace: list[np.ndarray]) -> list[object]:
    tensors = [
        _pointer(arg)
        for param, arg in zip(kernel.params, args, strict=True)
        if isinstance(param, TensorParam)
    ]
    scalars = [
        _scalar(param, arg)
        for param, arg in zip(kernel.params, args, strict=True)
        if isinstance(param, ScalarParam)
    ]
    return [*tensors, *map(_pointer, workspace), *scalars]


def _scalar(param: ScalarParam, value: object) -> object:
    dtype = str(param.var.ty.dtype)
    return getattr(ctypes, f"c_{_SCALARS.get(dtype, dtype)}")(value)


def _dims(values: Mapping[str, int]) -> list[object]:
    return [ctypes.c_int64(value) for value in values.values()]


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _aligned(size: int) -> np.ndarray:
    """Poisoned memory at a multiple of 64 bytes."""
    memory = np.full(size + _ALIGNMENT, 0xFF, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size]
