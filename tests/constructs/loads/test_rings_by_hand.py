"""Rings of tiles whose stages an author counts: loads stand some trips ahead of what reads them."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.targets import parse_target

M, N, K, STEP = 64, 64, 160, 32
TRIPS = K // STEP


def counted(stages, ahead, late=False, trips=TRIPS):
    """``ahead`` trips are loaded in front of the loop; ``late``: behind the product of a trip."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((N, K), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_shared((stages, M, STEP), "float16")
            b = T.alloc_shared((stages, N, STEP), "float16")
            acc = T.alloc_fragment((M, N), "float32")
            T.clear(acc)
            for s in T.serial(ahead):
                T.async_copy(A[0, s * STEP], a[s, :, :])
                T.async_copy(B[0, s * STEP], b[s, :, :])
            for k in T.serial(trips):
                if not late and k + ahead < trips:
                    T.async_copy(A[0, (k + ahead) * STEP], a[(k + ahead) % stages, :, :])
                    T.async_copy(B[0, (k + ahead) * STEP], b[(k + ahead) % stages, :, :])
                T.ptx_wait_group(ahead)
                T.sync_threads()
                T.wgmma_gemm(a[k % stages, :, :], b[k % stages, :, :], acc, transpose_B=True)
                T.wait_wgmma(0)
                T.sync_threads()
                if late and k + ahead < trips:
                    T.async_copy(A[0, (k + ahead) * STEP], a[(k + ahead) % stages, :, :])
                    T.async_copy(B[0, (k + ahead) * STEP], b[(k + ahead) % stages, :, :])
            T.copy(acc, C)

    return main


@T.prim_func
def two_buffers(
    A: T.Tensor((M, K), "float16"), B: T.Tensor((N, K), "float16"), C: T.Tensor((M, N), "float32")
):
    """The first load and the last product stand outside of the loop."""
    with T.Kernel(1, threads=128) as _:
        a, b = T.alloc_shared((2, M, STEP), "float16"), T.alloc_shared((2, N, STEP), "float16")
        acc = T.alloc_fragment((M, N), "float32")
        T.clear(acc)
        T.copy(A[0, 0], a[0, :, :])
        T.copy(B[0, 0], b[0, :, :])
        for k in T.serial(TRIPS - 1):
            T.copy(A[0, (k + 1) * STEP], a[(k + 1) & 1, :, :])
            T.copy(B[0, (k + 1) * STEP], b[(k + 1) & 1, :, :])
            T.gemm(a[k & 1, :, :], b[k & 1, :, :], acc, transpose_B=True)
        T.gemm(a[(TRIPS - 1) & 1, :, :], b[(TRIPS - 1) & 1, :, :], acc, transpose_B=True)
        T.copy(acc, C)


@T.prim_func
def found_by_table(
    X: T.Tensor((6, 32, 32), "float16"), P: T.Tensor((8,), "int32"), Y: T.Tensor((8, 32), "float32")
):
    """Pages that a table lists; each trip sums the columns of one."""
    with T.Kernel(1, threads=64) as _:
        x = T.alloc_shared((3, 32, 32), "float16")
        f, sums = T.alloc_fragment((32, 32), "float16"), T.alloc_fragment((32,), "float32")
        for s in T.serial(2):
            T.copy(X[P[s], 0:32, 0:32], x[s, :, :])
        for k in T.serial(8):
            if k < 6:
                T.copy(X[P[k + 2], 0:32, 0:32], x[(k + 2) % 3, :, :])
            T.copy(x[k % 3, :, :], f)
            T.reduce_sum(f, sums, dim=0)
            T.copy(sums, Y[k, 0:32])


def stages(kernel, *inputs):
    """The notes of a launch about rings."""
    made = lower(elaborated(kernel, inputs, None, {}, {}), parse_target("sm_90a"))
    return [note for note in made.body[0].notes if "stages that its author counts" in note]


def operands():
    rng = np.random.default_rng(0)
    A, B = (rng.integers(-4, 5, shape).astype("float16") for shape in ((M, K), (N, K)))
    return A, B, A.astype(float) @ B.astype(float).T


@pytest.mark.parametrize(
    "kernel",
    [counted(3, 2), counted(4, 1), counted(2, 2, late=True), two_buffers],
    ids=["two ahead", "one ahead of four", "behind the product", "two buffers"],
)
def test_stages_of_products(kernel):
    A, B, wanted = operands()
    agree(kernel, A, B, expected=wanted)
    assert len(stages(kernel, A, B)) == 2


def test_pages_of_a_table():
    rng = np.random.default_rng(0)
    X, P = rng.integers(-4, 5, (6, 32, 32)).astype("float16"), rng.integers(0, 6, 8).astype("int32")
    agree(found_by_table, X, P, expected=X[P].astype(float).sum(axis=1))
    assert len(stages(found_by_table, X, P)) == 1


@T.prim_func
def chained(X: T.Tensor((5, 32, 32), "float32"), Y: T.Tensor((32, 32), "float32")):
    """What a trip loads another one has written."""
    with T.Kernel(1, threads=64) as _:
        x = T.alloc_shared((2, 32, 32), "float32")
        f = T.alloc_fragment((32, 32), "float32")
        T.copy(X[0, 0:32, 0:32], x[0, :, :])
        for k in T.serial(4):
            T.copy(X[k + 1, 0:32, 0:32], x[(k + 1) % 2, :, :])
            T.copy(x[k % 2, :, :], f)
            for i, j in T.Parallel(32, 32):
                X[k + 1, i, j] = f[i, j] + 1.0
        T.copy(x[0, :, :], Y)


@T.prim_func
def skewed(X: T.Tensor((6, 32, 32), "float32"), Y: T.Tensor((5, 32, 32), "float32")):
    """Stages that a trip reads are not those that were loaded for it: it reads what another trip left."""
    with T.Kernel(1, threads=64) as _:
        x = T.alloc_shared((3, 32, 32), "float32")
        f = T.alloc_fragment((32, 32), "float32")
        T.copy(X[0, 0:32, 0:32], x[0, :, :])
        T.copy(X[5, 0:32, 0:32], x[2, :, :])
        for k in T.serial(5):
            if k < 3:
                T.copy(X[k + 1, 0:32, 0:32], x[(k + 1) % 3, :, :])
            T.copy(x[k % 3, :, :], f)
            T.copy(f, Y[k, 0:32, 0:32])


def test_what_no_ring_is_stays():
    X = np.random.default_rng(0).integers(-4, 5, (6, 32, 32)).astype("float32")
    wanted = X[[0, 1, 2, 3, 1]]
    agree(skewed, X, expected=wanted)
    assert stages(skewed, X) == []
    assert stages(chained, X[:5].copy()) == []


def in_variables(step):
    """Stages to read and to write are variables, which ``step`` takes on."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((N, K), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=128) as _:
            a, b = T.alloc_shared((2, M, STEP), "float16"), T.alloc_shared((2, N, STEP), "float16")
            acc = T.alloc_fragment((M, N), "float32")
            reading, writing = T.alloc_var("int32", 0), T.alloc_var("int32", 1)
            T.clear(acc)
            T.copy(A[0, 0], a[0, :, :])
            T.copy(B[0, 0], b[0, :, :])
            for k in T.serial(TRIPS):
                if k + 1 < TRIPS:
                    T.copy(A[0, (k + 1) * STEP], a[writing, :, :])
                    T.copy(B[0, (k + 1) * STEP], b[writing, :, :])
                writing = step(writing)
                T.gemm(a[reading, :, :], b[reading, :, :], acc, transpose_B=True)
                reading = step(reading)
            T.copy(acc, C)

    return main


@pytest.mark.parametrize(
    "step",
    [lambda s: (s + 1) % 2, lambda s: s ^ 1, lambda s: 1 - s, lambda s: T.if_then_else(s == 1, 0, s + 1)],
    ids=["remainder", "bit", "difference", "choice"],
)
def test_stages_in_variables(step):
    A, B, wanted = operands()
    agree(in_variables(step), A, B, expected=wanted, targets=("sm_90a",))
    assert len(stages(in_variables(step), A, B)) == 2


@T.prim_func
def two_steps(X: T.Tensor((6, 32, 32), "float32"), Y: T.Tensor((6, 32, 32), "float32")):
    """A variable that some trips take on twice, and one that is read behind the loop."""
    with T.Kernel(1, threads=64) as _:
        x = T.alloc_shared((3, 32, 32), "float32")
        f, stage, last = (
            T.alloc_fragment((32, 32), "float32"),
            T.alloc_var("int32", 0),
            T.alloc_var("int32", 0),
        )
        for s in T.serial(3):
            T.copy(X[s, 0:32, 0:32], x[s, :, :])
        for k in T.serial(5):
            T.copy(x[stage, :, :], f)
            T.copy(f, Y[k, 0:32, 0:32])
            stage = (stage + 1) % 3
            if k == 2:
                stage = (stage + 1) % 3
            last = (last + 1) % 3
        T.copy(x[last, :, :], f)
        T.copy(f, Y[5, 0:32, 0:32])


def test_other_variables_stay():
    X = np.random.default_rng(0).integers(-4, 5, (6, 32, 32)).astype("float32")
    agree(two_steps, X, expected=X[[0, 1, 2, 1, 2, 2]])
