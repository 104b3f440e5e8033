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
def handed_on_in_branches(
    G: T.Tensor((256,), "float32"),
    count: T.int32,
    M: T.Tensor((256,), "float16"),
    V: T.Tensor((256,), "float32"),
):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(256):
            if i < count * 8:
                M[i] = M[i] * 0.5 + G[i]
                V[i] = V[i] + M[i] * 0.3
                if G[i] > 0.0:
                    M[i] = M[i] + V[i]
                    V[i] = M[i] * V[i]
                V[i] = V[i] - M[i]


@T.prim_func
def moved_on(X: T.Tensor((64,), "float32"), Y: T.Tensor((64, 4), "float32")):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(64):
            at = T.alloc_var("int32")
            at = 0
            Y[i, at] = X[i]
            at = 1
            Y[i, at] = X[i] + 1.0
            at = 0
            Y[i, 2] = Y[i, at]
            Y[i, 3] = Y[i, at] * 2.0


def test_a_place_that_moves_on_is_another_element():
    x = np.arange(64, dtype=np.float32)
    expected = np.stack([x, x + 1, x, x * 2], 1)
    agree(moved_on, x, np.zeros((64, 4), np.float32), expected=expected, targets=("cpu", "sm_80", "gfx942"))


def test_an_iteration_reads_what_its_branches_stored():
    rng = np.random.default_rng(4)
    g, v = (rng.integers(-8, 9, 256).astype(np.float32) / 4 for _ in range(2))
    m = (rng.integers(-8, 9, 256) / 4).astype(np.float16)
    first = (m.astype(np.float32) * 0.5 + g).astype(np.float16)
    second = v + first.astype(np.float32) * np.float32(0.3)
    third = np.where(g > 0, first + second, first).astype(np.float16)
    fourth = np.where(g > 0, third.astype(np.float32) * second, second) - third.astype(np.float32)
    done = np.arange(256) < 200
    expected = (np.where(done, third, m), np.where(done, fourth, v))
    agree(handed_on_in_branches, g, 25, m, v, expected=expected, targets=("cpu", "sm_80", "sm_90a", "gfx942"))


@T.prim_func
def beyond(
    X: T.Tensor((32,), "float16"), n: T.int32, A: T.Tensor((20,), "float16"), Y: T.Tensor((32, 2), "float32")
):
    """Some of the elements that iterations store and read lie outside of the tile and of the tensor."""
    with T.Kernel(1, threads=32):
        s = T.alloc_shared((20,), "bfloat16")
        for i in T.Parallel(32):
            s[i + n] = X[i] + 1.0
            Y[i, 0] = T.cast(s[i + n], "float32") * 2.0
        for i in T.Parallel(32):
            A[i + n] = X[i]
            Y[i, 1] = A[i + n] + 1.0


@pytest.mark.parametrize("n", [0, -3])
def test_what_lies_outside_of_its_buffer_is_read_as_0(n):
    x = np.arange(1, 33, dtype=np.float16)
    inside = (np.arange(32) + n >= 0) & (np.arange(32) + n < 20)
    y = np.stack([np.where(inside, x + 1, 0) * 2, np.where(inside, x, 0) + 1], 1).astype(np.float32)
    agree(beyond, x, n, expected=(x[-n : 20 - n], y), targets=TARGETS)


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
