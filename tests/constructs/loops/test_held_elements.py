"""Loops of a thread that update one element of a tile or a tensor in every trip."""

from __future__ import annotations

import numpy as np
from agree import agree, halves, numbers

import tilec.language as T


@T.prim_func
def sums(A: T.Tensor((70, 40), "float16"), Y: T.Tensor((70,), "float32"), Z: T.Tensor((70,), "float16")):
    """Row sums in a shared tile and in a tensor whose rows end in a block."""
    with T.Kernel(T.ceildiv(70, 32), threads=64) as bx:
        s = T.alloc_shared((32,), "float32")
        T.fill(s, 1)
        for i in T.Parallel(32):
            for k in T.serial(40):
                s[i] += A[bx * 32 + i, k]
                Z[bx * 32 + i] += A[bx * 32 + i, k]
        T.copy(s, Y[bx * 32 : bx * 32 + 32])


def test_sums_of_rows_in_a_tile_and_a_tensor():
    agree(sums, halves(70, 40), halves(70))


def test_an_element_that_some_trips_store_is_stored_if_one_of_them_ran():
    @T.prim_func
    def main(A: T.Tensor((32, 40), "float32"), n: T.int32, best: T.Tensor((32,), "float32"),
             at: T.Tensor((32,), "int32")):  # fmt: skip
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                at[i] = -1
                for k in T.serial(n):
                    if A[i, k] > best[i]:
                        best[i] = A[i, k]
                        at[i] = k

    rows, start = numbers(32, 40, dtype="float32"), np.full(32, 5, np.float32)
    for count in (0, 1, 40):
        agree(main, rows, count, start)


def test_an_element_that_threads_update_in_turns_stays_in_memory():
    @T.prim_func
    def main(A: T.Tensor((32, 32), "float32"), Y: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((1,), "float32")
            tx = T.get_thread_binding()
            s[0] = 0
            for k in T.serial(32):
                if tx == k:
                    s[0] += A[tx, k]
            Y[0] = s[0]

    agree(main, numbers(32, 32, dtype="float32"), targets=("sm_80",))


def test_threads_sum_in_elements_of_their_own():
    @T.prim_func
    def main(A: T.Tensor((96, 50), "float16"), n: T.int32, Y: T.Tensor((96,), "float32")):
        with T.Kernel(2, threads=(16, 3)) as bx:
            s = T.alloc_shared((3, 16), "float32")
            tx, ty = T.get_thread_binding(0), T.get_thread_binding(1)
            s[ty, tx] = 0
            for k in T.serial(n):
                for r in T.unroll(2):
                    s[ty, tx] += A[bx * 48 + ty * 16 + tx, k] * (r + 1)
            Y[bx * 48 + ty * 16 + tx] = s[ty, tx]

    for count in (0, 7, 50):
        agree(main, halves(96, 50), count)
