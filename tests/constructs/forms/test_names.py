"""Dims, scalars and tensors of any names: C++, CUDA and Python have another use for some."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.codegen import images
from tilec.backends.cuda.emit.entry import lower_kernel
from tilec.backends.pipeline import lower
from tilec.targets import parse_target

TILE = 64


def scaled_rows():
    new, cls, template = T.dynamic("new, class, template")

    @T.prim_func
    def kernel(
        register: T.Tensor((new, cls), "float32"),
        int: T.float32,
        delete: T.int32,
        typename: T.Tensor((new, template), "float32"),
    ):
        half = new * 2
        with T.Kernel(T.ceildiv(half, 8), threads=32) as this:
            for i, union in T.Parallel(4, template):
                typename[this * 4 + i, union] = register[this * 4 + i, union] * int + T.cast(
                    delete, "float32"
                )

    x = np.arange(63, dtype="float32").reshape(7, 9)
    return kernel, (x, 2.0, 3), {"template": 5}, (2 * x + 3)[:, :5]


def product():
    new, register, cls = T.dynamic("new, register, class")

    @T.prim_func
    def kernel(
        this: T.Tensor((new, register), "float16"),
        delete: T.Tensor((cls, register), "float16"),
        float: T.float32,
        C: T.Tensor((new, cls), "float16"),
    ):
        with T.Kernel(T.ceildiv(cls, TILE), T.ceildiv(new, TILE), threads=128) as (bx, by):
            a, b = T.alloc_shared((TILE, 32), "float16"), T.alloc_shared((TILE, 32), "float16")
            c = T.alloc_fragment((TILE, TILE), "float32")
            T.clear(c)
            for union in T.Pipelined(T.ceildiv(register, 32), num_stages=2):
                T.copy(this[by * TILE, union * 32], a)
                T.copy(delete[bx * TILE, union * 32], b)
                T.gemm(a, b, c, transpose_B=True)
            for i, j in T.Parallel(TILE, TILE):
                c[i, j] *= float
            T.copy(c, C[by * TILE, bx * TILE])

    a, b = (np.random.default_rng(n).integers(-3, 4, (70 + n, 72)).astype("float16") for n in (1, 2))
    return kernel, (a, b, 2.0), {}, (2 * a.astype("float32") @ b.astype("float32").T).astype("float16")


def sums():
    """Dims as sizes call functions; locals as types, macros of compilers and constants are called."""
    max, select = T.dynamic("max, select")

    @T.prim_func
    def kernel(
        A: T.Tensor((max,), "float32"),
        B: T.Tensor((select,), "float32"),
        min: T.int32,
        C: T.Tensor((max,), "float32"),
    ):
        with T.Kernel(T.ceildiv(T.min(min, max), 32), threads=32) as b:
            for i in T.Parallel(32):
                float32_sum = A[b * 32 + i] + B[b]
                float4 = T.exp(float32_sum)
                __LINE__ = float4 * float4
                NAN = T.max(__LINE__, 2.0)
                C[b * 32 + i] = NAN + float4

    a, b = np.linspace(-1, 1, 40, dtype="float32"), np.array([0.5, -0.5], "float32")
    made = np.exp(a + b[np.arange(40) // 32])
    return kernel, (a, b, 40), {}, np.maximum(made * made, 2) + made


def letters():
    """Letters of Python that C++ compilers do not read."""
    λ = T.dynamic("λ")

    @T.prim_func
    def kernel(α: T.Tensor((λ,), "float32"), Δt: T.float32, β2: T.Tensor((λ,), "float32")):
        with T.Kernel(T.ceildiv(λ, 32), threads=32) as b:
            σ = T.alloc_shared((32,), "float32")
            for ι in T.Parallel(32):
                σ[ι] = α[b * 32 + ι] * Δt
            for ι in T.Parallel(32):
                é = σ[31 - ι]
                β2[b * 32 + 31 - ι] = é + é * é

    x = np.arange(40, dtype="float32")
    return kernel, (x, 2.0), {}, 2 * x + 4 * x * x


CASES = pytest.mark.parametrize("case", [scaled_rows, product, sums, letters])


@CASES
def test_results_do_not_depend_on_names(case):
    kernel, inputs, dims, expected = case()
    agree(kernel, *inputs, dims=dims, expected=expected)


@CASES
@pytest.mark.nvrtc
@pytest.mark.parametrize("name", ["sm_80", "sm_90a"])
def test_a_compiler_of_device_code_takes_them(case, name):
    kernel, inputs, dims, _ = case()
    target, made = parse_target(name), elaborated(kernel, inputs, dims, {}, {})
    assert images.compile_kernel(lower_kernel(lower(made, target), target), target, "k").code
