"""T.Parallel loops that write a tile of the block and a value of each thread."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.errors import UnsupportedError

A = (np.arange(32 * 24) % 17 - 5).reshape(32, 24).astype(np.float32)


def test_a_value_that_each_iteration_writes_first():
    """It stays one loop over the tile, also of a fragment."""

    @T.prim_func
    def main(X: T.Tensor(A.shape, "float32"), B: T.Tensor(A.shape, "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            tile = T.alloc_fragment((32, 24), "float32")
            one, pair = T.alloc_local((1,), "float32"), T.alloc_local((2,), "float32")
            C[tx] = tx
            for i, j in T.Parallel(32, 24):
                one[0] = X[i, j] * 2.0
                for v in T.serial(2):
                    pair[v] = one[0] + v
                tile[i, j] = pair[0] * pair[1]
            T.copy(tile, B)

    agree(main, A, expected=[2 * A * (2 * A + 1), np.arange(64, dtype=np.float32)])


def test_values_that_threads_add_up():
    """Every iteration counts in one thread, once."""

    @T.prim_func
    def main(X: T.Tensor(A.shape, "float32"), B: T.Tensor(A.shape, "float32"), S: T.Tensor((2,), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            tile = T.alloc_shared((32, 24), "float32")
            count, total = T.alloc_var("int32"), T.alloc_local((1,), "float32")
            total[0] = 0.0
            for i, j in T.Parallel(32, 24):
                tile[i, j] = X[i, j] + 1.0
                if X[i, j] > 0.0:
                    count += 1
                    total[0] += X[i, j]
            T.copy(tile, B)
            if tx < 64:
                T.atomic_add(S[0], T.cast(count, "float32"))
                T.atomic_add(S[1], total[0])

    zeros = np.zeros(2, np.float32)
    agree(main, A, zeros, expected=[A + 1, np.array([(A > 0).sum(), A[A > 0].sum()], np.float32)])


def test_fragments_and_values_that_threads_add_up_are_refused():
    @T.prim_func
    def main(X: T.Tensor(A.shape, "float32"), S: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            tile, count = T.alloc_fragment((32, 24), "float32"), T.alloc_var("int32")
            for i, j in T.Parallel(32, 24):
                tile[i, j] = X[i, j]
                count += 1
            S[tx] = count

    with pytest.raises(UnsupportedError, match="writes tile of the block and count of each thread"):
        elaborated(main, (A,), None, {}, {})


LINE = np.arange(64, dtype=np.float32)


def test_arrays_of_each_thread_are_filled_in_all():
    """No thread is named: every one has the whole array, and a value that each iteration writes first."""

    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32"), S: T.Tensor((2,), "float32")):
        with T.Kernel(1, threads=32):
            own, one = T.alloc_local((64,), "float32"), T.alloc_local((1,), "float32")
            total, tile = T.alloc_local((1,), "float32"), T.alloc_shared((64,), "float32")
            for i in T.Parallel(64):
                own[i] = X[63 - i]
                tile[i] = X[i] * 2.0
            for i in T.Parallel(64):
                one[0] = own[i] + 1.0
                Y[i] = one[0] * tile[i]
            T.reduce_sum(own, total)
            S[0] = total[0]
            S[1] = own[1]

    sums = np.array([LINE.sum(), 62], np.float32)
    agree(main, LINE, expected=[(LINE[::-1] + 1) * LINE * 2, sums])


def test_such_loops_with_effects_that_count_are_refused():
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), S: T.Tensor((1,), "float32"), Y: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=32):
            own = T.alloc_local((64,), "float32")
            for i in T.Parallel(64):
                own[i] = X[i]
                T.atomic_add(S[0], X[i])
            Y[0] = own[3]

    with pytest.raises(UnsupportedError, match="writes S of the block and own of each thread"):
        elaborated(main, (LINE, np.zeros(1, np.float32)), None, {}, {})
