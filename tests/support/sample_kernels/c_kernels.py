"""Kernels whose C is compiled and run: every kind of statement and expression that CPU code has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import tilec.language as T


@dataclass(frozen=True)
class Case:
    """A kernel with what makes its arguments, in the order of its parameters."""

    name: str
    entry: Any
    arguments: Callable[[], list[Any]]
    dims: Mapping[str, int] = field(default_factory=dict)
    args: Mapping[str, Any] = field(default_factory=dict)


def numbers(*shape: int, dtype: Any = np.float32, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return np.random.default_rng(0).uniform(low, high, shape).astype(dtype)


def integers(*shape: int, dtype: Any = np.int32, low: int = -100, high: int = 100) -> np.ndarray:
    return np.random.default_rng(1).integers(low, high, shape).astype(dtype)


@T.prim_func
def scale(X: T.Tensor((T.dynamic("n"),), "float32"), factor: T.float32, Y: T.Tensor((100,), "float32")):
    with T.Kernel(2, threads=64) as bx:
        for i in T.Parallel(64):
            Y[bx * 64 + i] = X[bx * 64 + i] * factor


@T.prim_func
def looked_up(
    X: T.Tensor((T.dynamic("n"),), "float32"), at: T.Tensor((64,), "int32"), Y: T.Tensor((64,), "float32")
):
    with T.Kernel(1, threads=64) as _:
        for i in T.Parallel(64):
            Y[i] = T.if_then_else(at[i] >= 0, X[at[i]], 1.0) * 2.0


@T.prim_func
def four_bits(X: T.Tensor((64,), "uint8"), Y: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64) as _:
        for i in T.Parallel(64):
            Y[i] = T.cast((T.cast(X[i], "int32") & 15) - 8, "float32") * 0.5


def matmul(dtype, accumulated="float32", M=40, N=56, K=48):
    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), accumulated)):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 32), threads=128) as (bx, by):
            As, Bs = T.alloc_shared((32, 32), dtype), T.alloc_shared((32, 32), dtype)
            acc = T.alloc_fragment((32, 32), accumulated)
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, 32), num_stages=2):
                T.copy(A[by * 32, k * 32], As)
                T.copy(B[bx * 32, k * 32], Bs)
                T.gemm(As, Bs, acc, transpose_B=True)
            T.copy(acc, C[by * 32, bx * 32])

    return main


def few_rows(M=5, N="n", K=48):
    N = T.dynamic(N)

    @T.prim_func
    def main(A: T.Tensor((M, K), "float32"), B: T.Tensor((K, N), "float32"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, 64), threads=128) as bx:
            As, Bs = T.alloc_shared((8, 32), "float32"), T.alloc_shared((32, 64), "float32")
            acc = T.alloc_fragment((8, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, 32), num_stages=2):
                T.copy(A[0, k * 32], As)
                T.copy(B[k * 32, bx * 64], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C[0, bx * 64])

    return main


@T.prim_func
def softmax(X: T.Tensor((10, 40), "float32"), Y: T.Tensor((10, 40), "float16")):
    with T.Kernel(5, threads=32) as bx:
        x, y = T.alloc_fragment((2, 40), "float32"), T.alloc_fragment((2, 40), "float32")
        top, total = T.alloc_fragment((2,), "float32"), T.alloc_fragment((2,), "float32")
        T.copy(X[bx * 2, 0], x)
        T.reduce_max(x, top, dim=1)
        for i, j in T.Parallel(2, 40):
            y[i, j] = T.exp(x[i, j] - top[i])
        T.reduce_sum(y, total, dim=1)
        for i, j in T.Parallel(2, 40):
            Y[bx * 2 + i, j] = y[i, j] / total[i]


@T.prim_func
def functions(X: T.Tensor((64,), "float32"), Y: T.Tensor((16, 64), "float32")):
    with T.Kernel(1, threads=32) as _:
        for i in T.Parallel(64):
            Y[0, i] = T.exp2(X[i]) + T.exp10(X[i] * 0.1)
            Y[1, i] = T.log(X[i] + 3.0) + T.log2(X[i] + 3.0) + T.log10(X[i] + 3.0) + T.log1p(X[i] + 3.0)
            Y[2, i] = T.rsqrt(X[i] + 3.0) + T.sqrt(X[i] + 3.0)
            Y[3, i] = T.sigmoid(X[i]) + T.tanh(X[i]) + T.erf(X[i])
            Y[4, i] = T.sin(X[i]) + T.cos(X[i]) + T.tan(X[i] * 0.5)
            Y[5, i] = T.floor(X[i]) + T.ceil(X[i]) + T.trunc(X[i]) + T.round(X[i]) + T.nearbyint(X[i])
            Y[6, i] = T.pow(X[i] + 3.0, X[i]) + T.atan2(X[i], X[i] + 3.0) + T.hypot(X[i], 2.0)
            Y[7, i] = T.max(X[i], 0.5) + T.min(X[i], 0.25) + T.abs(X[i]) + T.clamp(X[i], -0.5, 0.5)
            Y[8, i] = T.if_then_else(X[i] > 0.0, X[i], -1.0)
            Y[9, i] = T.if_then_else(T.isnan(X[i]) or X[i] < -1.0, 1.0, T.fma(X[i], X[i], 2.0))
            Y[10, i] = T.asin(X[i] * 0.5) + T.acos(X[i] * 0.5) + T.atan(X[i]) + T.fmod(X[i], 0.75)
            Y[11, i] = T.sinh(X[i]) + T.cosh(X[i]) + T.asinh(X[i]) + T.acosh(X[i] + 4.0) + T.atanh(X[i] * 0.4)
            Y[12, i] = T.copysign(1.0, X[i]) + T.cast(T.reinterpret(X[i], "int32") & 255, "float32")
            Y[13, i] = T.cast(X[i] > 0.0 and not X[i] > 1.0, "float32")
            Y[14, i] = T.cast(T.cast(X[i] * 10.0, "int8"), "float32")
            Y[15, i] = T.infinity("float32") if i == 3 else -T.infinity("float32")


@T.prim_func
def whole_numbers(X: T.Tensor((64,), "int32"), U: T.Tensor((64,), "uint8"), Y: T.Tensor((10, 64), "int32")):
    with T.Kernel(1, threads=32) as _:
        for i in T.Parallel(64):
            Y[0, i] = X[i] // 7 + X[i] % 7 * 1000
            Y[1, i] = X[i] // -7 + X[i] % -7 * 1000
            Y[2, i] = T.truncdiv(X[i], 7) + T.truncmod(X[i], 7) * 1000
            Y[3, i] = (X[i] << 3) + (X[i] >> 2) + (X[i] & 12) + (X[i] | 3) + (X[i] ^ 5) + ~X[i]
            Y[4, i] = T.popcount(X[i]) + T.abs(X[i])
            Y[5, i] = T.cast((U[i] >> T.uint8(4)) & T.uint8(15), "int32") - 8
            Y[6, i] = T.cast(T.cast(X[i], "int64") * 5_000_000_000 % 1000, "int32")
            Y[7, i] = X[63 - i] + X[(i * 7) % 64]
            Y[8, i] = T.max(X[i], -5) - T.min(X[i], 5)
            Y[9, i] = T.if_then_else(i < 5, X[i], U[i])


@T.prim_func
def control(X: T.Tensor((T.dynamic("n"),), "float32"), Y: T.Tensor((8,), "float32")):
    n = T.dynamic("n")
    with T.Kernel(8, threads=32) as bx:
        total = T.alloc_var("float32")
        at = T.alloc_var("int32")
        at = bx
        while at < n:
            if X[at] < 0.0:
                total += 1.0
            else:
                total += X[at]
            at += 8
        for i in T.serial(4):
            if i > bx:
                break
            if i == 2:
                continue
            total += 10.0
        Y[bx] = total


@T.prim_func
def atomics(
    X: T.Tensor((64,), "float32"),
    W: T.Tensor((64,), "int32"),
    F: T.Tensor((4,), "float32"),
    N: T.Tensor((4,), "int32"),
):
    with T.Kernel(4, threads=32) as bx:
        for i in T.Parallel(16):
            T.atomic_add(F[0], X[bx * 16 + i])
            T.atomic_max(F[1], X[bx * 16 + i])
            T.atomic_min(F[2], X[bx * 16 + i])
            T.atomic_add(N[0], W[bx * 16 + i])
            T.atomic_max(N[1], W[bx * 16 + i])
            T.atomic_min(N[2], W[bx * 16 + i])


@T.prim_func
def exchanged(F: T.Tensor((2,), "uint32"), C: T.Tensor((64,), "int32"), Y: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=32) as _:
        T.atomic_store(F[1], T.atomic_load(F[0]) + T.uint32(2))
        for i in T.Parallel(64):
            Y[i] = T.clz(C[i])


@T.prim_func
def scan(X: T.Tensor((6, 30), "float32"), Y: T.Tensor((6, 30), "float32")):
    with T.Kernel(3, threads=32) as bx:
        s = T.alloc_shared((2, 30), "float32")
        T.copy(X[bx * 2, 0], s)
        T.cumsum(s, dim=1)
        T.copy(s, Y[bx * 2, 0])


@T.prim_func
def two_launches(X: T.Tensor((8, 33), "float32"), Y: T.Tensor((8,), "float32")):
    part = T.alloc_global((8, 3), "float32")
    with T.Kernel(8, 3, threads=32) as (bx, by):
        f, s = T.alloc_fragment((11,), "float32"), T.alloc_fragment((1,), "float32")
        T.copy(X[bx, by * 11], f)
        T.reduce_sum(f, s, dim=0)
        part[bx, by] = s[0]
    with T.Kernel(8, threads=32) as bx:
        Y[bx] = part[bx, 0] + part[bx, 1] + part[bx, 2]


@T.prim_func
def some_lanes(X: T.Tensor((64,), "float32"), At: T.Tensor((64,), "int32"), Y: T.Tensor((2, 64), "float32")):
    with T.Kernel(1, threads=32) as _:
        for i in T.Parallel(64):
            if X[i] > 0.0:
                Y[0, i] = X[i] * 2.0
                Y[1, At[i]] = X[i] + 1.0


def halves(dtype):
    @T.prim_func
    def main(X: T.Tensor((70,), dtype), a: T.float16, Y: T.Tensor((70,), dtype)):
        with T.Kernel(1, threads=32) as _:
            for i in T.Parallel(70):
                Y[i] = T.exp(X[i]) * X[i] + a

    return main


def dtyped(dtype: Any, *shape: int) -> np.ndarray:
    return numbers(*shape).astype(dtype)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


CASES = [
    Case("scale", scale, lambda: [numbers(100), 1.5, np.zeros(100, np.float32)], {"n": 100}),
    Case("four_bits", four_bits, lambda: [integers(64, dtype=np.uint8, low=0), np.zeros(64, np.float32)]),
    Case("looked_up", looked_up, lambda: [numbers(50), integers(64), np.zeros(64, np.float32)], {"n": 50}),
    *(
        Case(
            f"matmul_{name}",
            matmul,
            lambda dtype=dtype: [
                dtyped(dtype, 40, 48),
                dtyped(dtype, 56, 48),
                np.zeros((40, 56), np.float32),
            ],
            args={"dtype": name},
        )
        for name, dtype in {
            "float32": np.float32,
            "float16": np.float16,
            "bfloat16": ml_dtypes.bfloat16,
            "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
        }.items()
    ),
    *(
        Case(
            f"matmul_{name}",
            matmul,
            lambda dtype=dtype, low=low: [
                integers(40, 48, dtype=dtype, low=low),
                integers(56, 48, dtype=dtype, low=low),
                np.zeros((40, 56), np.int32),
            ],
            args={"dtype": name, "accumulated": "int32"},
        )
        for name, dtype, low in (("int8", np.int8, -100), ("uint8", np.uint8, 0))
    ),
    Case(
        "few_rows",
        few_rows,
        lambda: [numbers(5, 48), numbers(48, 107), np.zeros((5, 107), np.float32)],
        {"n": 107},
    ),
    Case("softmax", softmax, lambda: [numbers(10, 40), np.zeros((10, 40), np.float16)]),
    Case("functions", functions, lambda: [numbers(64), np.zeros((16, 64), np.float32)]),
    Case(
        "whole_numbers",
        whole_numbers,
        lambda: [integers(64), integers(64, dtype=np.uint8, low=0), np.zeros((10, 64), np.int32)],
    ),
    Case("control", control, lambda: [numbers(50), np.zeros(8, np.float32)]),
    Case(
        "atomics",
        atomics,
        lambda: [numbers(64), integers(64), np.zeros(4, np.float32), np.zeros(4, np.int32)],
    ),
    Case(
        "exchanged",
        exchanged,
        lambda: [np.array([7, 0], np.uint32), integers(64) + 200, np.zeros(64, np.int32)],
    ),
    Case("scan", scan, lambda: [numbers(6, 30), np.zeros((6, 30), np.float32)]),
    Case(
        "some_lanes",
        some_lanes,
        lambda: [numbers(64), np.argsort(numbers(64)).astype(np.int32), zeros(2, 64)],
    ),
    Case("two_launches", two_launches, lambda: [numbers(8, 33), np.zeros(8, np.float32)]),
    *(
        Case(
            f"halves_{name}",
            halves,
            lambda dtype=dtype: [dtyped(dtype, 70), 0.5, np.zeros(70, dtype)],
            args={"dtype": name},
        )
        for name, dtype in {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}.items()
    ),
]
