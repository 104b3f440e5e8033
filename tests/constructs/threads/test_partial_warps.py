"""Blocks that are no whole warps, and threads that end before others meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.nodes import Sync
from tilec.backends.pipeline import lower
from tilec.emulate import EmulatedKernel
from tilec.ir.interp import interpreter
from tilec.ir.nodes import walk
from tilec.targets import parse_target


def numbers(*shape: int, dtype: Any = np.int32) -> np.ndarray:
    return np.random.default_rng(0).integers(-4, 5, shape).astype(dtype)


@pytest.mark.parametrize("threads", [1, 16, 48, (6, 7)])
def test_tile_operations_of_any_number_of_threads(threads: Any) -> None:
    @T.prim_func
    def main(
        A: T.Tensor((40, 24), "float32"), B: T.Tensor((40, 24), "float32"), C: T.Tensor((40,), "float32")
    ):
        with T.Kernel(2, threads=threads) as bx:
            s = T.alloc_shared((20, 24), "float32")
            f, r = T.alloc_fragment((20, 24), "float32"), T.alloc_fragment((20,), "float32")
            T.copy(A[bx * 20, 0], s)
            for i, j in T.Parallel(20, 24):
                f[i, j] = s[19 - i, j] * 2
            T.reduce_sum(f, r, dim=1)
            T.copy(f, B[bx * 20, 0])
            T.copy(r, C[bx * 20])

    a = numbers(40, 24, dtype=np.float32)
    wanted = 2 * a.reshape(2, 20, 24)[:, ::-1].reshape(40, 24)
    agree(main, a, expected=[wanted, wanted.sum(1)], targets=("sm_80", "sm_90a"))


@pytest.mark.parametrize("threads", [16, 48])
def test_what_threads_tell_each_other(threads: int) -> None:
    @T.prim_func
    def main(
        A: T.Tensor((2, threads), "int32"),
        N: T.Tensor((2,), "int32"),
        V: T.Tensor((2, threads, 8), "int32"),
    ):
        with T.Kernel(2, threads=threads) as bx:
            tx = T.get_thread_binding()
            s = T.alloc_shared((threads,), "int32")
            s[tx] = A[bx, tx]
            T.sync_threads()
            x = A[bx, tx]
            T.atomic_add(N[bx], x)
            V[bx, tx, 0] = s[threads - 1 - tx] + T.get_thread_extent()
            V[bx, tx, 1] = T.syncthreads_count(x > 0)
            V[bx, tx, 2] = T.shfl_down(x, 1)
            V[bx, tx, 3] = T.warp_reduce_max(x - 10)
            V[bx, tx, 4] = T.cast(T.ballot(x > 0), "int32")
            V[bx, tx, 5] = T.cast(T.all_sync(x > -100, 0xFFFFFFFF), "int32")
            V[bx, tx, 6] = T.cast(T.activemask(), "int32")
            V[bx, tx, 7] = T.cast(T.match_any_sync(x, 0xFFFFFFFF), "int32")

    a = numbers(2, threads)
    found = agree(main, a, np.zeros(2, np.int32), targets=("cpu", "sm_80"))
    assert (found[1][:, :, 1] == (a > 0).sum(1)[:, None]).all()
    np.testing.assert_array_equal(found[0], a.sum(1))


def test_sums_along_the_axes_of_a_partial_warp() -> None:
    @T.prim_func
    def main(A: T.Tensor((7, 6), "float32"), B: T.Tensor((7, 6, 2), "float32")):
        with T.Kernel(1, threads=(6, 7)):
            tx, ty = T.get_thread_binding(0), T.get_thread_binding(1)
            row, column = T.alloc_local((1,), "float32"), T.alloc_local((1,), "float32")
            add = T.comm_reducer(lambda x, y: x + y, [T.float32(0)])
            with T.attr(add, "reduce_scope", T.reinterpret(T.uint64(0), dtype="handle")):
                T.evaluate(T.tvm_thread_allreduce(T.uint32(1), A[ty, tx], True, row[0], tx, dtype="handle"))
            with T.attr(add, "reduce_scope", T.reinterpret(T.uint64(0), dtype="handle")):
                T.evaluate(
                    T.tvm_thread_allreduce(T.uint32(1), A[ty, tx], True, column[0], ty, dtype="handle")
                )
            B[ty, tx, 0] = row[0]
            B[ty, tx, 1] = column[0]

    a = numbers(7, 6, dtype=np.float32)
    rows, columns = np.broadcast_to(a.sum(1)[:, None], a.shape), np.broadcast_to(a.sum(0), a.shape)
    agree(main, a, expected=np.stack([rows, columns], 2), targets=("sm_80",))


@pytest.mark.parametrize("held", [False, True])
def test_threads_that_have_ended_keep_nobody_waiting(held: bool) -> None:
    """Half of a warp ends, then some of the others; the rest meets in a loop, votes and shuffles. How long
    the loop is may be ``held`` in a variable that is set where some have ended."""

    @T.prim_func
    def main(A: T.Tensor((2, 64), "int32"), L: T.Tensor((2,), "int32"), B: T.Tensor((2, 64, 3), "int32")):
        with T.Kernel(2, threads=64) as bx:
            tx = T.get_thread_binding()
            s = T.alloc_shared((64,), "int32")
            total, count = T.alloc_var("int32"), T.alloc_var("int32")
            for k in T.serial(3):
                B[bx, tx, k] = -1
            if tx >= L[bx]:
                T.thread_return()
            count = L[bx] // 16
            trips = count if held else L[bx] // 16
            s[tx] = A[bx, tx]
            for k in T.serial(trips):
                T.sync_threads()
                total += s[(tx + k) % L[bx]]
                T.sync_threads()
                s[tx] = s[tx] + 1
            if tx % 8 == 7:
                T.thread_return()
            B[bx, tx, 0] = total
            B[bx, tx, 1] = T.syncthreads_count(total > 0)
            B[bx, tx, 2] = T.shfl_down(total, 1)

    a, lengths = numbers(2, 64), np.array([48, 20], np.int32)
    found = agree(main, a, lengths, targets=("sm_80",) if held else ("cpu", "sm_80", "sm_90a"))[0]
    for block, length in enumerate(lengths):
        assert (found[block, length:] == -1).all()
        assert (found[block, :length][np.arange(length) % 8 != 7, 1] != -1).all()


def test_tile_operations_behind_threads_that_end() -> None:
    """Blocks past the end do nothing; in the last one the threads that are left do the work of all."""

    @T.prim_func
    def main(A: T.Tensor((100,), "float32"), B: T.Tensor((160,), "float32"), C: T.Tensor((160,), "float32")):
        with T.Kernel(5, threads=32) as bx:
            tx = T.get_thread_binding()
            if bx * 32 + tx >= 100:
                T.thread_return()
            f = T.alloc_fragment((32,), "float32")
            T.copy(A[bx * 32], f)
            for i in T.Parallel(32):
                B[bx * 32 + i] = f[i] + 1
            C[bx * 32 + tx] = A[bx * 32 + tx] * 2

    a = numbers(100, dtype=np.float32)
    b = np.where(np.arange(160) < 128, np.pad(a, (0, 60)) + 1, 7)
    c = np.where(np.arange(160) < 100, np.pad(a, (0, 60)) * 2, 7)
    made = elaborated(main, (), {}, {}, {})
    emulated = EmulatedKernel(made, parse_target("sm_80"))
    for run in (emulated, lambda args, dims: interpreter.run(made, args, dims)):
        args = [a, np.full(160, 7, np.float32), np.full(160, 7, np.float32)]
        run(args, {})
        np.testing.assert_array_equal(args[1], b)
        np.testing.assert_array_equal(args[2], c)


@pytest.mark.parametrize("threads", [12, 64])
def test_threads_that_are_left_store_again(threads: int) -> None:
    """Elements that threads keep to themselves, and those of others, which they have to wait for."""

    @T.prim_func
    def main(A: T.Tensor((100,), "int32"), B: T.Tensor((100, 4), "int32"), C: T.Tensor((9, 8), "int32")):
        with T.Kernel(T.ceildiv(100, threads), threads=threads) as bx:
            tx = T.get_thread_binding()
            s = T.alloc_shared((8,), "int32")
            i = bx * threads + tx
            if i >= 100:
                T.thread_return()
            for k in T.serial(3):
                B[i, k] = A[i] + k
            B[i, 3] = A[i]
            s[tx % 8] = 0
            if tx < 8:
                s[7 - tx] = tx + 1
            B[i, 3] = A[i] * 2
            if tx < 8:
                C[bx, tx] = s[tx]

    a = numbers(100)
    wanted = np.concatenate([a[:, None] + np.arange(3), 2 * a[:, None]], 1).astype(np.int32)
    found = agree(main, a, targets=("cpu", "sm_80", "sm_90a"))
    np.testing.assert_array_equal(found[0], wanted)
    np.testing.assert_array_equal(found[1][0], np.arange(8, 0, -1))


@pytest.mark.parametrize(
    ("threads", "column", "barriers"),
    [(64, False, 0), ((32, 4), False, 0), (64, True, 1), ((6, 7), False, 1)],
)
def test_threads_wait_for_what_others_store(threads: Any, column: bool, barriers: int) -> None:
    @T.prim_func
    def main(B: T.Tensor((64, 64, 2), "int32")):
        with T.Kernel(1, threads=threads):
            tx, ty = T.get_thread_binding(0), T.get_thread_binding(1)
            B[ty, tx, 0] = tx
            B[ty, 63 - tx if column else tx, 0] = ty

    found = walk(lower(elaborated(main, (), None, {}, {}), parse_target("sm_80")).body)
    assert sum(isinstance(stmt, Sync) for stmt in found) == barriers
