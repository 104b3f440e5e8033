"""Results that the last cache cannot keep are written past it: where that is so, and what they are then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cpu_products import Product

import tilec
import tilec.language as T
from tilec.backends.cpu.codegen import objects
from tilec.backends.cpu.probe import last_cache_bytes
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.guards import Guard
from tilec.ir.text.parser import parse_kernel
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import native_target, parse_target

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel

#: Bytes of the last cache up to which a test may take arrays of half of it.
_MOST = 64 << 20


@tilec.jit
def shifted(X, Y):
    M, N = T.const("M N")
    X: T.Tensor[[M, N], T.float32]
    Y: T.Tensor[[M, N], T.float32]
    with T.Kernel(M, threads=32) as row:
        for j in T.Parallel(N):
            Y[row, j] = X[row, j] + 1.0


@tilec.jit
def shifted_and_read(X, Y):
    M, N = T.const("M N")
    X: T.Tensor[[M, N], T.float32]
    Y: T.Tensor[[M, N], T.float32]
    Z = T.empty((M, N), T.float32)
    with T.Kernel(M, threads=32) as row:
        for j in T.Parallel(N):
            Y[row, j] = X[row, j] + 1.0
    with T.Kernel(M, threads=32) as row:
        for j in T.Parallel(N):
            Z[row, j] = Y[row, N - 1 - j]
    return Z


def assembly(kernel: Kernel, target: str) -> str:
    code = parse_target(target)
    return objects.assembly(to_tir(lower(kernel, code), code), code, "kernel")


def elaborated(function: Any) -> Kernel:
    dims = {name: Guard() for name in ("M", "N")}
    return elaborate(function, name="kernel", dims=dims, args={}, config={})


@pytest.mark.parametrize(
    ("target", "store"),
    [("x86-64-v4", "vmovntps\t%zmm"), ("x86-64-v3", "vmovntps\t%ymm"), ("x86-64-v2", "movntps\t%xmm")],
)
def test_what_is_streamed_is_fenced(target: str, store: str) -> None:
    text = assembly(elaborated(shifted), target)
    assert store in text
    assert "sfence" in text


def test_other_processors_and_products_stream_nothing() -> None:
    assert "last_cache" not in assembly(elaborated(shifted), "aarch64")
    assert "last_cache" not in assembly(parse_kernel(Product().text("product")), "x86-64-v4")


def test_what_a_kernel_reads_again_is_not_streamed() -> None:
    first, _, second = assembly(elaborated(shifted_and_read), "x86-64-v4").partition("kernel_1:")
    assert "movnt" not in first
    assert "movnt" in second


@pytest.mark.parametrize("off", [0, 1])
@pytest.mark.parametrize("columns", [1024, 1003])
def test_large_results_are_what_small_ones_are(columns: int, off: int) -> None:
    """Rows at aligned places and others, with ends that fill no vector."""
    if native_target().arch != "x86_64" or not 0 < last_cache_bytes() <= _MOST:
        pytest.skip("the last cache of this machine is unknown, or more than a test fills")
    rows = last_cache_bytes() // (8 * columns) + 1
    x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    memory = np.zeros(x.size + 32, np.float32)
    first = -memory.ctypes.data // 4 % 16 + off
    y = memory[first : first + x.size].reshape(rows, columns)
    shifted(x, y)
    assert np.array_equal(y, x + 1)
    assert not memory[:first].any()
    assert not memory[first + x.size :].any()


@tilec.jit
def powers(X, Y):
    M, N = T.const("M N")
    X: T.Tensor[[M, N], T.float32]
    Y: T.Tensor[[M, N], T.float32]
    with T.Kernel(M, threads=32) as row:
        x = T.alloc_fragment((1, 4096), T.float32)
        top, total = (T.alloc_fragment((1,), T.float32) for _ in range(2))
        for i, j in T.Parallel(1, N):
            x[i, j] = X[row, j]
        T.reduce_max(x[0:1, 0:N], top, dim=1)
        for i, j in T.Parallel(1, N):
            x[i, j] = T.exp2(x[i, j] - top[i])
        T.reduce_sum(x[0:1, 0:N], total, dim=1)
        for i, j in T.Parallel(1, N):
            Y[row, j] = x[i, j] / total[i]


def test_the_lines_of_what_is_streamed_are_not_asked_for() -> None:
    code = parse_target("x86-64-v4")
    text = str(to_tir(lower(elaborated(powers), code), code))
    asked = [line for line in text.splitlines() if "prefetch" in line]
    assert asked
    assert all("Y_streams" in line for line in asked)
