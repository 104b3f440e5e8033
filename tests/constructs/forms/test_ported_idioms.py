"""Kernels in the manner of programs that move over: threads that sort and shuffle, tables in shared memory,
products of one task, launches in macros, names imported one by one."""

from __future__ import annotations

import numpy as np
from agree import agree

import tilec
import tilec.language as T
from tilec.language import Kernel, Parallel, Tensor, alloc_shared, copy, float16, prim_func

TARGETS = ("cpu", "sm_80")


@T.macro
def across_lanes(local: T.Tensor((4,), "float32"), other: T.Tensor((4,), "float32"), rounds: T.int32):
    """Steps of a Walsh-Hadamard transform between the lanes of a warp."""
    tx = T.get_thread_binding(0)
    for i in T.serial(rounds):
        for j in T.serial(4):
            other[j] = T.tvm_warp_shuffle(0xFFFFFFFF, local[j], (tx ^ (1 << i)) % 32, 32, 32)
            local[j] = T.if_then_else((tx >> i) & 1 == 0, local[j] + other[j], other[j] - local[j])


def test_a_hadamard_transform_by_shuffles():
    @T.prim_func
    def main(A: T.Tensor((3, 128), "float32"), B: T.Tensor((3, 128), "float32")):
        with T.Kernel(3, threads=32) as bx:
            tx = T.get_thread_binding(0)
            local, other = T.alloc_local((4,), "float32"), T.alloc_local((4,), "float32")
            local[0:4] = A[bx, tx * 4 : tx * 4 + 4]
            for i in T.serial(2):
                for start in T.serial(4 // (2 << i)):
                    for k in T.serial(1 << i):
                        low, high = start * (2 << i) + k, start * (2 << i) + k + (1 << i)
                        first, second = local[low], local[high]
                        local[low] = first + second
                        local[high] = first - second
            across_lanes(local, other, 5)
            B[bx, tx * 4 : tx * 4 + 4] = local[0:4]

    matrix = np.array([[1.0]], np.float32)
    while len(matrix) < 128:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    a = (np.arange(3 * 128) % 7 - 3).reshape(3, 128).astype(np.float32)
    agree(main, a, expected=a @ matrix, targets=TARGETS)


def test_threads_sort_a_shared_row():
    @T.prim_func
    def main(A: T.Tensor((2, 64), "float32"), B: T.Tensor((2, 64), "float32")):
        with T.Kernel(2, threads=64) as bx:
            tid = T.get_thread_binding(0)
            row = T.alloc_shared((64,), "float32")
            row[tid] = A[bx, tid]
            T.sync_threads()
            for i in T.serial(6):
                for j in T.serial(i + 1):
                    distance = 1 << (i - j)
                    if (tid & distance) == 0 and (row[tid] > row[tid + distance]) != (
                        (tid >> (i + 1)) & 1 != 0
                    ):
                        row[tid], row[tid + distance] = row[tid + distance], row[tid]
                    T.sync_threads()
            B[bx, tid] = row[tid]

    a = np.random.default_rng(1).standard_normal((2, 64)).astype(np.float32)
    agree(main, a, expected=np.sort(a, axis=1), targets=TARGETS)


def test_a_product_of_one_task_in_local_tiles():
    """Written for CPUs; on a GPU every thread computes all of its block's tile."""

    @T.prim_func
    def main(
        A: T.Tensor((16, 24), "float32"), B: T.Tensor((24, 8), "float32"), C: T.Tensor((16, 8), "float32")
    ):
        with T.Kernel(T.ceildiv(8, 4), T.ceildiv(16, 8), threads=32, is_cpu=True) as (bx, by):
            a, b = T.alloc_local((8, 8), "float32"), T.alloc_local((8, 4), "float32")
            c = T.alloc_local((8, 4), "float32")
            T.clear(c)
            for k in T.serial(3):
                for i, j in T.Parallel(8, 8):
                    a[i, j] = A[by * 8 + i, k * 8 + j]
                for i, j in T.Parallel(8, 4):
                    b[i, j] = B[k * 8 + i, bx * 4 + j]
                for i, j, m in T.grid(8, 4, 8):
                    c[i, j] += a[i, m] * b[m, j]
            T.copy(c, C[by * 8, bx * 4])

    a, b = (np.arange(n * m).reshape(n, m) % 5 - 2.0 for n, m in ((16, 24), (24, 8)))
    agree(main, a.astype(np.float32), b.astype(np.float32), expected=a @ b, targets=TARGETS)


def test_codes_looked_up_in_a_shared_table():
    @prim_func
    def main(Q: Tensor((16, 8), "uint8"), table: Tensor((16,), float16), W: Tensor((16, 16), float16)):
        with Kernel(threads=32):
            codes, values = alloc_shared((16, 8), "uint8"), alloc_shared((16,), float16)
            copy(Q, codes)
            copy(table, values)
            for i, j in Parallel(16, 16):
                W[i, j] = values[(codes[i, j // 2] >> (4 * (j % 2))) & 0xF]

    q = np.random.default_rng(2).integers(0, 256, (16, 8)).astype(np.uint8)
    table = np.linspace(-1, 1, 16).astype(np.float16)
    wanted = table[np.stack([q & 15, q >> 4], axis=-1).reshape(16, 16)]
    agree(main, q, table, expected=wanted, targets=TARGETS)


@T.macro
def sums_of_parts(X: T.Tensor, part: T.Tensor, n: int, parts: int):
    with T.Kernel(parts, threads=32) as p:
        tile, total = T.alloc_fragment((n // parts,), "float32"), T.alloc_fragment((1,), "float32")
        T.copy(X[p * (n // parts)], tile)
        T.reduce_sum(tile, total)
        part[p] = total[0]


def test_launches_that_macros_hold():
    @tilec.jit
    def kernel(X, parts: int = 8):
        N = T.const("N")
        X: T.Tensor[[N], T.float32]
        Y = T.empty((1,), T.float32)
        part = T.alloc_global((parts,), T.float32)
        sums_of_parts(X, part, N, parts)
        sums_of_parts(part, Y, parts, 1)
        return Y

    x = (np.arange(256) % 9 - 4).astype(np.float32)
    agree(kernel, x, expected=[np.array([x.sum()])], targets=TARGETS)
