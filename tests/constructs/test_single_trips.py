"""Loops of one trip that are left early, and iterations that read what they have just stored."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree

import tilec.language as T

TARGETS = ("cpu", "sm_80", "gfx942")


def left(form):
    @T.prim_func
    def kernel(X: T.Tensor((16,), "float32"), n: T.int32, Y: T.Tensor((16,), "float32")):
        with T.Kernel(2, threads=32) as bx:
            f = T.alloc_fragment((8,), "float32")
            T.copy(X[bx * 8], f)
            if form in ("break", "pipelined"):
                for _ in T.Pipelined(1) if form == "pipelined" else T.serial(1):
                    for i in T.Parallel(8):
                        f[i] += 1.0
                    if n > 2:
                        break
                    for i in T.Parallel(8):
                        f[i] += 10.0
            if form == "continue":
                for _ in T.serial(1):
                    for i in T.Parallel(8):
                        f[i] += 1.0
                    if n > 2:
                        continue
                    for i in T.Parallel(8):
                        f[i] += 10.0
            if form == "nested":
                for _ in T.serial(2):
                    for _ in T.serial(1):
                        for i in T.Parallel(8):
                            f[i] += 0.5
                        if n > 2:
                            break
                        for i in T.Parallel(8):
                            f[i] += 5.0
            T.copy(f, Y[bx * 8])

    return kernel


@pytest.mark.parametrize("form", ["break", "pipelined", "continue", "nested"])
@pytest.mark.parametrize("n", [1, 3])
def test_what_stands_behind_a_loop_of_one_trip_runs(form, n):
    x = np.arange(16, dtype=np.float32)
    agree(left(form), x, n, expected=x + (1 if n > 2 else 11), targets=TARGETS)


@T.prim_func
def handed_on(X: T.Tensor((13, 16), "float32"), Y: T.Tensor((13, 16), "float32")):
    """13 rows of 128 threads: several of them have an iteration, one stores."""
    with T.Kernel(1, threads=128):
        s, f = T.alloc_shared((13, 16), "float16"), T.alloc_fragment((13, 16), "float32")
        for i, j in T.Parallel(13, 16):
            s[i, j] = X[i, j] * 0.3
            f[i, j] = 0.25 - s[i, j]
        T.copy(f, Y)


def test_an_iteration_reads_what_it_stored():
    x = np.random.default_rng(4).standard_normal((13, 16)).astype(np.float32)
    kept = (x * np.float32(0.3)).astype(np.float16).astype(np.float32)
    agree(handed_on, x, expected=np.float32(0.25) - kept, targets=("cpu", "sm_80", "sm_90a", "gfx942"))


@T.prim_func
def functions_of_functions(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            once = T.asinh(X[i])
            twice = T.acosh(T.asinh(T.sinh(once) * 0.5) * 0.5 + 2.0)
            Y[i] = once * twice + T.if_then_else(once < 1.0, T.log(once + 5.0), twice)


def test_functions_of_functions_compile_as_fast_as_others():
    x = np.linspace(-3, 3, 64, dtype=np.float32)
    once = np.arcsinh(x)
    twice = np.arccosh(np.arcsinh(np.sinh(once) * 0.5) * 0.5 + 2.0)
    expected = once * twice + np.where(once < 1, np.log(once + 5.0), twice)
    agree(functions_of_functions, x, expected=expected, targets=("cpu",), rtol=1e-5, atol=1e-5)
