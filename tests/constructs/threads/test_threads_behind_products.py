"""Launches whose threads meet, and do something one by one, behind a loop of products."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.targets import parse_target

PARTS, M, N, K, STEP = 2, 128, 256, 256, 64


def multiplied(A, B, acc, row, column, first, count):
    """Adds a product to ``acc``, in pipelined trips."""
    a, b = T.alloc_shared((128, STEP), "float16"), T.alloc_shared((128, STEP), "float16")
    T.clear(acc)
    for k in T.Pipelined(count // STEP, num_stages=2):
        T.copy(A[row, first + k * STEP], a)
        T.copy(B[column, first + k * STEP], b)
        T.gemm(a, b, acc, transpose_B=True)


multiplied = T.macro(multiplied)


@T.prim_func
def in_order(A: T.Tensor((M, K), "float16"), B: T.Tensor((N, K), "float16"), C: T.Tensor((M, N), "float32"),
             L: T.Tensor((N // 128,), "int32")):  # fmt: skip
    """Parts of K add to the result one after the other, each when the one before has said so."""
    with T.Kernel(PARTS, N // 128, threads=256) as (part, bx):
        acc, seen = T.alloc_fragment((128, 128), "float32"), T.alloc_local((1,), "int32")
        multiplied(A, B, acc, 0, bx * 128, part * (K // PARTS), K // PARTS)
        seen[0] = -1
        while seen[0] != part:
            seen[0] = T.atomic_load(L[bx], memory_order="acquire")
        T.sync_threads()
        if part > 0:
            for i, j in T.Parallel(128, 128):
                acc[i, j] += C[i, bx * 128 + j]
        T.copy(acc, C[0, bx * 128])
        T.sync_threads()
        if T.get_thread_binding() == 0:
            T.atomic_store(L[bx], (part + 1) % PARTS, memory_order="release")


@T.prim_func
def told(A: T.Tensor((M, K), "float16"), B: T.Tensor((N, K), "float16"), C: T.Tensor((M, N), "float16"),
         D: T.Tensor((N // 128,), "int32")):  # fmt: skip
    """Results that pass through a shared tile, and a count of those that are there."""
    with T.Kernel(N // 128, threads=256) as bx:
        acc, c = T.alloc_fragment((128, 128), "float32"), T.alloc_shared((128, 128), "float16")
        multiplied(A, B, acc, 0, bx * 128, 0, K)
        T.copy(acc, c)
        T.copy(c, C[0, bx * 128])
        T.sync_threads()
        if T.get_thread_binding() == 0:
            T.atomic_add(D[bx], 1, memory_order="release")


@T.prim_func
def exchanged(A: T.Tensor((M, K), "float16"), B: T.Tensor((N, K), "float16"), C: T.Tensor((M, N), "float32"),
              R: T.Tensor((2, 128), "float32")):  # fmt: skip
    """Threads add up the rows of a tile, two to a row."""
    with T.Kernel(N // 128, threads=256) as bx:
        acc, c = T.alloc_fragment((128, 128), "float32"), T.alloc_shared((128, 128), "float32")
        halves, tx = T.alloc_shared((256,), "float32"), T.get_thread_binding()
        multiplied(A, B, acc, 0, bx * 128, 0, K)
        T.copy(acc, c)
        T.copy(acc, C[0, bx * 128])
        T.sync_threads()
        halves[tx] = 0.0
        for j in T.serial(64):
            halves[tx] += c[tx % 128, tx // 128 * 64 + j]
        T.sync_threads()
        if tx < 128:
            R[bx, tx] = halves[tx] + halves[tx + 128]


@T.prim_func
def met_before(A: T.Tensor((M, K), "float16"), B: T.Tensor((N, K), "float16"),
               C: T.Tensor((M, N), "float32"), P: T.Tensor((N // 128,), "int32")):  # fmt: skip
    """One thread finds out which tile the block has."""
    with T.Kernel(N // 128, threads=256) as bx:
        acc, which = T.alloc_fragment((128, 128), "float32"), T.alloc_shared((1,), "int32")
        if T.get_thread_binding() == 0:
            which[0] = P[bx]
        T.sync_threads()
        multiplied(A, B, acc, 0, which[0] * 128, 0, K)
        T.copy(acc, C[0, which[0] * 128])


def operands():
    rng = np.random.default_rng(0)
    A, B = (rng.integers(-3, 4, (rows, K)).astype("float16") for rows in (M, N))
    return A, B, A.astype(float) @ B.astype(float).T


def has_roles(kernel, *inputs):
    """Whether warps of a launch load for those who compute."""
    made = lower(elaborated(kernel, inputs, None, {}, {}), parse_target("sm_90a"))
    return any(road.kind == "warp_roles" and road.loss is None for road in made.body[0].roads)


@pytest.mark.parametrize("kernel", [in_order, told, exchanged], ids=["in order", "told", "exchanged"])
def test_threads_meet_behind_products(kernel):
    A, B, wanted = operands()
    counts = np.zeros(N // 128, "int32")
    more, expected = {
        in_order: ([np.zeros((M, N), "float32"), counts], [wanted, counts]),
        told: ([counts], [wanted, counts + 1]),
        exchanged: ([], [wanted, wanted.reshape(M, 2, 128).sum(axis=2).T]),
    }[kernel]
    waits = kernel is in_order
    targets = ("sm_80", "sm_90a") if waits else ("cpu", "sm_80", "sm_90a")
    agree(kernel, A, B, *more, expected=expected, targets=targets, interpreted=not waits)
    assert has_roles(kernel, A, B, *more) != waits


def test_threads_meet_in_front_of_products():
    A, B, wanted = operands()
    P = np.array([1, 0], "int32")
    agree(met_before, A, B, P, expected=wanted)
    assert not has_roles(met_before, A, B, P)
