"""Fragments where threads need each other's elements: what CUDA code exchanges through shared memory."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, numbers, roads

import tilec.language as T


def test_the_last_iteration_that_writes_an_element_wins():
    @T.prim_func
    def main(X: T.Tensor((4, 64), "float32"), At: T.Tensor((4,), "int32"), Best: T.Tensor((2,), "float32")):
        with T.Kernel(1, threads=128):
            x, top = T.alloc_fragment((4, 64), "float32"), T.alloc_fragment((4,), "float32")
            at, best, where = (
                T.alloc_fragment((4,), "int32"),
                T.alloc_fragment((1,), "float32"),
                T.alloc_fragment((1,), "int32"),
            )
            T.copy(X, x)
            T.reduce_max(x, top, dim=1)
            T.clear(at)
            for i, j in T.Parallel(4, 64):
                if x[i, j] == top[i]:
                    at[i] = j
            T.copy(at, At)
            T.fill(best, -T.infinity("float32"))
            T.clear(where)
            for j in T.Parallel(64):
                if X[2, j] > best[0]:
                    best[0] = X[2, j]
                    where[0] = j
            Best[0] = best[0]
            Best[1] = where[0]

    x = numbers(4, 64)
    agree(main, x, expected=[63 - x[:, ::-1].argmax(1), [x[2].max(), x[2].argmax()]])


def test_old_values_of_atomics_reach_fragments_of_fewer_elements_than_threads():
    @T.prim_func
    def main(A: T.Tensor((16,), "int32"), N: T.Tensor((4,), "int32"), Seen: T.Tensor((16,), "int32")):
        with T.Kernel(1, threads=128):
            f = T.alloc_fragment((16,), "int32")
            for i in T.Parallel(16):
                before = T.atomic_add(N[A[i]], 1, return_prev=True)
                f[i] = T.if_then_else(before < 4, 1, 0)
            T.copy(f, Seen)

    agree(
        main, np.arange(16, dtype=np.int32) % 4, np.zeros(4, np.int32), expected=[np.full(4, 4), np.ones(16)]
    )


def test_bounds_of_loops_are_elements_of_fragments():
    @T.prim_func
    def main(A: T.Tensor((8, 16), "float32"), N: T.Tensor((1,), "int32"), B: T.Tensor((3, 16), "float32")):
        with T.Kernel(1, threads=64):
            ends, f = T.alloc_fragment((64,), "int32"), T.alloc_fragment((16,), "float32")
            s, it = T.alloc_shared((16,), "float32"), T.alloc_var("int32")
            for i in T.Parallel(64):
                ends[i] = N[0]
            T.clear(f)
            for k in T.serial(ends[3]):
                for i in T.Parallel(16):
                    f[i] += A[k, i]
            T.copy(f, B[0, :])
            T.clear(f)
            while it < ends[7]:
                for i in T.Parallel(16):
                    f[i] += A[it, i]
                it += 1
            T.copy(f, B[1, :])
            T.clear(f)
            for k in T.Pipelined(ends[1], num_stages=2):
                T.copy(A[k, :], s)
                for i in T.Parallel(16):
                    f[i] += s[i]
            T.copy(f, B[2, :])

    a = numbers(8, 16)
    agree(main, a, np.array([5], np.int32), expected=np.tile(a[:5].sum(0), (3, 1)))


def test_groups_of_a_row_through_another_shape():
    @T.prim_func
    def main(
        A: T.Tensor((32, 64), "float16"), S: T.Tensor((32, 4), "float32"), Q: T.Tensor((32, 64), "float32")
    ):
        with T.Kernel(2, threads=128) as bx:
            x, s = T.alloc_fragment((16, 64), "float32"), T.alloc_fragment((16, 4), "float32")
            T.copy(A[bx * 16, 0], x)
            groups = T.reshape(x, (16, 4, 16))
            T.reduce_absmax(groups, s, dim=2)
            for i, g, k in T.Parallel(16, 4, 16):
                groups[i, g, k] *= s[i, g]
            T.copy(s, S[bx * 16, 0])
            T.copy(x, Q[bx * 16, 0])

    a = numbers(32, 64, dtype="float16")
    groups = a.astype(np.float64).reshape(32, 4, 16)
    s = np.abs(groups).max(2)
    agree(main, a, expected=[s, (groups * s[:, :, None]).reshape(32, 64)])


def test_chunks_of_linear_attention_keep_their_state_in_a_fragment():
    @T.prim_func
    def main(
        Q: T.Tensor((2, 64, 32), "float16"), K: T.Tensor((2, 64, 32), "float16"),
        V: T.Tensor((2, 64, 32), "float16"), R: T.Tensor((2, 64, 32), "float32"),
    ):  # fmt: skip
        with T.Kernel(2, threads=128) as b:
            q, k, v = (T.alloc_shared((16, 32), "float16") for _ in range(3))
            s, p = T.alloc_fragment((16, 16), "float32"), T.alloc_shared((16, 16), "float16")
            h, hs = T.alloc_fragment((32, 32), "float32"), T.alloc_shared((32, 32), "float16")
            o = T.alloc_fragment((16, 32), "float32")
            T.clear(h)
            for c in T.Pipelined(4, num_stages=2):
                T.copy(Q[b, c * 16, 0], q)
                T.copy(K[b, c * 16, 0], k)
                T.copy(V[b, c * 16, 0], v)
                T.clear(s)
                T.gemm(q, k, s, transpose_B=True)
                for i, j in T.Parallel(16, 16):
                    s[i, j] = T.if_then_else(i >= j, s[i, j], 0)
                T.copy(s, p)
                T.copy(h, hs)
                T.gemm(p, v, o, clear_accum=True)
                T.gemm(q, hs, o)
                T.gemm(k, v, h, transpose_A=True)
                T.copy(o, R[b, c * 16, 0])

    q, k, v = (
        (np.random.default_rng(seed).integers(-1, 2, (2, 64, 32))).astype(np.float16) for seed in range(3)
    )
    x, y, z = (part.astype(np.float64) for part in (q, k, v))
    agree(main, q, k, v, expected=np.tril(x @ y.swapaxes(1, 2)) @ z)


@pytest.mark.parametrize(("target", "rows"), [("sm_80", 16), ("sm_90a", 64)])
def test_sums_meet_no_bank_twice_in_a_tile_that_is_added_by_rows(target, rows):
    """Rows of C are no multiple of 16 bytes, so that TMA adds none; on sm_90a warps with roles multiply."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 66), "float32")
    ):
        with T.Kernel(64 // rows, threads=128) as bx:
            a, b = T.alloc_shared((rows, 32), "float16"), T.alloc_shared((32, 64), "float16")
            acc, tile = T.alloc_fragment((rows, 64), "float32"), T.alloc_shared((rows, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[bx * rows, k * 32], a)
                T.copy(B[k * 32, 0], b)
                T.gemm(a, b, acc)
            T.copy(acc, tile)
            T.atomic_add(C[bx * rows, 0], tile)

    a, b, c = numbers(64, 64, dtype="float16"), numbers(64, 64, dtype="float16", seed=1), numbers(64, 66)
    product = np.pad(a.astype("float32") @ b.astype("float32"), ((0, 0), (0, 2)))
    taken = roads(main, a, b, c, target=target)
    assert not [road for road in taken if road.loss and "bank" in str(road)]
    agree(main, a, b, c, expected=c + product, targets=(target,))


def test_elements_that_a_factor_of_one_stores_to_themselves():
    def scaled(factor):
        @T.prim_func
        def main(A: T.Tensor((13, 24), "float32"), B: T.Tensor((13, 24), "float32")):
            with T.Kernel(1, threads=64):
                f = T.alloc_fragment((13, 24), "float32")
                T.copy(A, f)
                for i, j in T.Parallel(13, 24):
                    f[i, j] = f[i, j] * factor
                T.copy(f, B)

        return main

    a = np.arange(13 * 24, dtype=np.float32).reshape(13, 24)
    for factor in (1, 2):
        agree(scaled(factor), a, expected=a * factor)
