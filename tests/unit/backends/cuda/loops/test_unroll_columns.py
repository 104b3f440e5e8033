"""Loops down the columns of shared tiles, around loops over elements of fragments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.nodes import ThreadLoop
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Store, walk
from tilec.targets import parse_target


def distances(dtype: str, columns: int):
    """Sums of distances between rows of two tensors."""

    @T.prim_func
    def main(A: T.Tensor((32, 32), dtype), B: T.Tensor((32, 32), dtype), C: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=64):
            a, b = T.alloc_shared((32, columns), dtype), T.alloc_shared((32, columns), dtype)
            acc = T.alloc_fragment((32, 32), "float32")
            T.clear(acc)
            for k in T.serial(32 // columns):
                T.copy(A[0, k * columns], a)
                T.copy(B[0, k * columns], b)
                for c in T.serial(columns):
                    for i, j in T.Parallel(32, 32):
                        acc[i, j] += T.abs(T.cast(a[i, c], "float32") - T.cast(b[j, c], "float32"))
            T.copy(acc, C)

    return main


def stores_of_an_iteration(main: Any, *arguments: np.ndarray) -> int:
    """The most that a thread's loop of a kernel stores in an iteration."""
    kernel = lower(elaborated(main, arguments, None, {}, {}), parse_target("sm_80"))
    loops = [stmt for stmt in walk(kernel.launches[0].body) if isinstance(stmt, ThreadLoop)]
    return max(sum(isinstance(stmt, Store) for stmt in walk(loop.body)) for loop in loops)


@pytest.mark.parametrize(
    ("dtype", "columns", "together"),
    [("float32", 32, 4), ("float32", 2, 1), ("float16", 16, 4), ("float64", 8, 2)],
)
def test_trips_along_a_row_are_one(dtype, columns, together):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 10, (32, 32)).astype(dtype) for _ in "ab")
    main = distances(dtype, columns)
    agree(main, a, b, expected=np.abs(a[:, None] - b[None]).sum(-1).astype(np.float32))
    assert stores_of_an_iteration(main, a, b) == together


def test_products_of_floats_by_elements_agree():
    @T.prim_func
    def main(
        A: T.Tensor((32, 32), "float32"), B: T.Tensor((32, 64), "float32"), C: T.Tensor((32, 64), "float32")
    ):
        with T.Kernel(1, threads=64):
            a, b = T.alloc_shared((32, 16), "float32"), T.alloc_shared((16, 64), "float32")
            acc = T.alloc_fragment((32, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[0, k * 16], a)
                T.copy(B[k * 16, 0], b)
                for c in T.serial(16):
                    for i, j in T.Parallel(32, 64):
                        acc[i, j] += a[i, c] * b[c, j]
            T.copy(acc, C)

    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((32, 32), (32, 64)))
    agree(main, a, b, expected=a @ b)
    assert stores_of_an_iteration(main, a, b) == 4


def test_trips_that_read_what_other_iterations_stored_stay_apart():
    @T.prim_func
    def main(A: T.Tensor((64, 16), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            a, kept = T.alloc_shared((64, 16), "float32"), T.alloc_fragment((64,), "float32")
            T.copy(A, a)
            T.clear(kept)
            for c in T.serial(16):
                for i in T.Parallel(64):
                    kept[i] = kept[63 - i] + a[i, c]
            T.copy(kept, C)

    a = np.random.default_rng(0).integers(-9, 10, (64, 16)).astype(np.float32)
    assert stores_of_an_iteration(main, a) == 1


def test_trips_that_add_up_a_row_of_iterations_stay_apart():
    @T.prim_func
    def main(A: T.Tensor((32, 16), "float32"), C: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=64):
            a, total = T.alloc_shared((32, 16), "float32"), T.alloc_fragment((32,), "float32")
            T.copy(A, a)
            T.clear(total)
            for c in T.serial(16):
                for i, j in T.Parallel(32, 8):
                    total[i] += a[i, c] * j
            T.copy(total, C)

    a = np.random.default_rng(0).integers(-9, 10, (32, 16)).astype(np.float32)
    agree(main, a, expected=a.sum(1) * 28)
    assert stores_of_an_iteration(main, a) == 1


def test_trips_whose_number_the_run_tells_are_all_run():
    @T.prim_func
    def main(A: T.Tensor((8, 16), "float32"), B: T.Tensor((16, 8), "float32"), n: T.int32,
             C: T.Tensor((8, 8), "float32")):  # fmt: skip
        with T.Kernel(1, threads=64):
            a, b = T.alloc_shared((8, 16), "float32"), T.alloc_shared((16, 8), "float32")
            acc = T.alloc_fragment((8, 8), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(acc)
            for k in T.serial(n):
                for i, j in T.Parallel(8, 8):
                    acc[i, j] += a[i, k] * b[k, j]
            T.copy(acc, C)

    a, b = (np.random.default_rng(0).integers(-9, 10, (16, 8)).astype("float32") for _ in "ab")
    agree(main, a.T.copy(), b, 5, expected=a[:5].T @ b[:5], targets=("sm_80", "metal3"))


def test_trips_that_store_to_elements_of_other_iterations_stay_apart():
    @T.prim_func
    def main(A: T.Tensor((250, 4), "float32"), C: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=64):
            a, last = T.alloc_shared((250, 4), "float32"), T.alloc_fragment((256,), "float32")
            T.copy(A, a)
            T.clear(last)
            for k in T.serial(4):
                for i in T.Parallel(250):
                    last[i + k] = a[i, k]
            T.copy(last, C)

    a = np.random.default_rng(0).integers(-9, 10, (250, 4)).astype("float32")
    expected = np.zeros(256, "float32")
    for k in range(4):
        expected[k : k + 250] = a[:, k]
    agree(main, a, expected=expected, targets=("sm_80",))
