"""T.annotate_restrict_buffers: tensors that a call lets overlap, on every road and at every door."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agree import elaborated

import tilec.language as T
from tilec.backends.cpu.codegen import objects as cpu
from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.emulate import EmulatedKernel
from tilec.errors import SourceAssertionError
from tilec.inprocess.compilation.building import build, make_job
from tilec.ir.interp import interpreter
from tilec.ir.nodes import Kernel
from tilec.portable import loader
from tilec.targets import native_target, parse_target


@T.prim_func
def steps(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
    """The second loop reads what the first one has left."""
    with T.Kernel(1, threads=64):
        T.annotate_restrict_buffers(A, B)
        for i in T.Parallel(64):
            B[i] = A[i] * 2
        for i in T.Parallel(64):
            C[i] = A[63 - i] + 1


@T.prim_func
def ahead(A: T.Tensor((80,), "float32"), B: T.Tensor((80,), "float32"), C: T.Tensor((80,), "float32")):
    """Each trip reads the tile that the one before has written."""
    with T.Kernel(1, threads=32):
        T.annotate_restrict_buffers(A, B)
        tile, other = T.alloc_shared((16,), "float32"), T.alloc_shared((16,), "float32")
        for k in T.Pipelined(4, num_stages=3):
            T.copy(A[k * 16], tile)
            T.copy(C[k * 16], other)
            for i in T.Parallel(16):
                B[k * 16 + 16 + i] = tile[15 - i] + other[i]


@T.prim_func
def product(
    A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float16")
):
    """C = A B over A."""
    with T.Kernel(1, threads=128):
        T.annotate_restrict_buffers(A, C)
        a, b = T.alloc_shared((64, 32), "float16"), T.alloc_shared((32, 64), "float16")
        c = T.alloc_fragment((64, 64), "float32")
        T.clear(c)
        for k in T.Pipelined(2, num_stages=2):
            T.copy(A[0, k * 32], a)
            T.copy(B[k * 32, 0], b)
            T.gemm(a, b, c)
        T.copy(c, C)


@T.prim_func
def launches(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
    """What one launch says of its tensors holds in the other."""
    with T.Kernel(1, threads=64):
        T.annotate_restrict_buffers(A, B)
        for i in T.Parallel(64):
            B[i] = A[i] + C[i]
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            A[i] = A[i] + 1
            C[i] = B[i] * 2


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).integers(-3, 4, shape).astype(dtype)


def case_steps(run: Any) -> None:
    x, c = numbers(64), np.zeros(64, np.float32)
    wanted = 2 * x
    run(x, x, c)
    np.testing.assert_array_equal(x, wanted)
    np.testing.assert_array_equal(c, wanted[::-1] + 1)


def case_ahead(run: Any) -> None:
    x, c = numbers(80), numbers(80)
    wanted = x.copy()
    for k in range(4):
        wanted[k * 16 + 16 : k * 16 + 32] = wanted[k * 16 : k * 16 + 16][::-1] + c[k * 16 : k * 16 + 16]
    run(x, x, c)
    np.testing.assert_array_equal(x, wanted)


def case_product(run: Any) -> None:
    a, b = numbers(64, 64, dtype=np.float16), numbers(64, 64, dtype=np.float16)
    wanted = a.astype(np.float32) @ b.astype(np.float32)
    run(a, b, a)
    np.testing.assert_array_equal(a, wanted.astype(np.float16))


def case_launches(run: Any) -> None:
    x, c = numbers(64), numbers(64)
    wanted = x + c + 1
    run(x, x, c)
    np.testing.assert_array_equal(x, wanted)
    np.testing.assert_array_equal(c, 2 * wanted)


def case_shifted(run: Any) -> None:
    """B begins in the middle of A."""
    both, c = numbers(96), np.zeros(64, np.float32)
    wanted = both.copy()
    wanted[32:] = 2 * wanted[:64]
    run(both[:64], both[32:], c)
    np.testing.assert_array_equal(both, wanted)
    np.testing.assert_array_equal(c, wanted[:64][::-1] + 1)


@T.prim_func
def tiles(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
    """All of A is read before B is written."""
    with T.Kernel(1, threads=64):
        T.annotate_restrict_buffers(A, B)
        f = T.alloc_fragment((64,), "float32")
        T.copy(A, f)
        for i in T.Parallel(64):
            B[i] = f[i] * 2
        for i in T.Parallel(64):
            C[i] = A[63 - i] + 1


CASES = {
    "steps": (steps, case_steps),
    "ahead": (ahead, case_ahead),
    "product": (product, case_product),
    "launches": (launches, case_launches),
    "shifted": (tiles, case_shifted),
}


def kernel_of(func: Any) -> Kernel:
    return elaborated(func, (), {}, {}, {})


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Builds each kernel once; its path."""
    made: dict[str, Path] = {}

    def path(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("overlap") / "kernel.so"
            kernel = kernel_of(CASES[name][0])
            build(make_job(kernel, native_target().name, (), (), made[name]), kernel)
        return made[name]

    return path


@pytest.mark.parametrize("name", CASES)
def test_the_interpreter(name: str) -> None:
    func, case = CASES[name]
    case(lambda *args: interpreter.run(kernel_of(func), list(args), {}))


@pytest.mark.parametrize("name", CASES)
def test_machine_code_through_the_loader(name: str, library: Any) -> None:
    function = loader.load(library(name)).kernels["kernel"]
    CASES[name][1](lambda *args: function(*args))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", CASES)
def test_device_code(name: str, target: str) -> None:
    func, case = CASES[name]
    emulated = EmulatedKernel(kernel_of(func), parse_target(target))
    case(lambda *args: emulated(list(args), {}))


def test_doors_refuse_what_nobody_said_may_overlap(library: Any) -> None:
    function = loader.load(library("steps")).kernels["kernel"]
    x, c = numbers(64), np.zeros(64, np.float32)
    with pytest.raises(loader.LaunchError, match="C is written and shares memory with A"):
        function(x, c, x)


def test_the_door_of_tvm_ffi(library: Any) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    path = library("steps")
    module = tvm_ffi.load_module(str(path))
    symbols = subprocess.run(["nm", "-D", str(path)], capture_output=True, text=True, check=True).stdout
    name = re.search(r"__tvm_ffi_(\w+)", symbols)
    assert name is not None
    case_steps(lambda *args: module[name[1]](*args))


def test_pointers_of_others_keep_their_promise() -> None:
    kernel = kernel_of(steps)
    gpu = parse_target("sm_80")
    text = cuda.source(to_tir(lower(kernel, gpu), gpu), gpu, "k")
    heads = re.findall(r"k_0\((.*)\)[;]? ?[{]?$", text, re.MULTILINE)
    assert len(heads) == 2
    for head in heads:
        assert head.split(", ") == ["float* A_ptr", "float* B_ptr", "float* __restrict__ C_ptr"]
    host = parse_target("x86-64-v3")
    lowered = to_tir(lower(kernel, host), host)
    assert "k_0(float *A_ptr, float *B_ptr, float *restrict C_ptr" in cpu.source(lowered, host, "k")
    module = cpu.llvm_ir(lowered, host, "k")
    assert re.search(r"ptr (?:\w+ )*noalias", module.split("define", 1)[1].split(")", 1)[0]) is None
    kinds = {name: re.findall(rf"ptr %{name}, align 4.*!tbaa (!\d+)", module)[0] for name in "ABC"}
    assert kinds["A"] == kinds["B"] != kinds["C"]


def test_only_parameters_may_overlap() -> None:
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((64,), "float32")
            T.annotate_restrict_buffers(A, tile)
            T.copy(A, tile)

    with pytest.raises(SourceAssertionError, match="tile is no parameter"):
        kernel_of(main)
