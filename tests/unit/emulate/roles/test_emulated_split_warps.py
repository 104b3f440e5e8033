"""Launches whose authors split their warps, on an emulated sm_90a: what they name is what runs."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilec.language as T
from tilec.backends.cuda.nodes import ProductsWait, TensorStore
from tilec.backends.pipeline import lower
from tilec.emulate import EmulatedKernel
from tilec.ir.nodes import Kernel, walk
from tilec.ir.nodes.barriers import SetRegisters
from tilec.ir.options import NO_ROLES
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
M, N, K, BM, BN, BK, STAGES = 128, 64, 256, 64, 64, 64, 2


def kernel_of(program: Any, **args: Any) -> Kernel:
    made = program(**args) if inspect.isfunction(program) else program
    return elaborate(made, name="kernel", dims={}, args={}, config={})


def roads(kernel: Kernel) -> list[str]:
    """The kinds of roads of the loads, products and stores of a kernel."""
    (launch,) = lower(kernel, SM90A).launches
    return [road.kind for road in launch.roads if road.kind in ("tma", "wgmma", "mma.sync", "threads")]


def run(kernel: Kernel, *arrays: np.ndarray) -> None:
    EmulatedKernel(kernel, SM90A)(list(arrays), {})


def operands(dtype: str = "float16") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((M, K), (K, N)))
    return a, b, np.zeros((M, N), np.float32)


def one_thread(announced):
    """Thread 0 of the first group starts the loads; it announces their bytes or does not."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(M // BM, threads=256) as by:
            As = T.alloc_shared((STAGES, BM, BK), "float16")
            Bs = T.alloc_shared((STAGES, BK, BN), "float16")
            acc = T.alloc_fragment((BM, BN), "float32")
            full, free = T.alloc_barrier([1] * STAGES), T.alloc_barrier([128] * STAGES)
            tx = T.get_thread_binding()
            if tx < 128:
                if tx == 0:
                    for k in T.serial(K // BK):
                        at = k % STAGES
                        T.barrier_wait(free[at], (k // STAGES + 1) % 2)
                        if announced:
                            T.mbarrier_expect_tx(full[at], 2 * BK * (BM + BN))
                        T.tma_copy(A[by * BM, k * BK], As[at, :, :], barrier=full[at])
                        T.tma_copy(B[k * BK, 0], Bs[at, :, :], barrier=full[at])
                        T.barrier_arrive(full[at])
            else:
                T.clear(acc)
                for k in T.serial(K // BK):
                    T.barrier_wait(full[k % STAGES], k // STAGES % 2)
                    T.gemm(As[k % STAGES, :, :], Bs[k % STAGES, :, :], acc)
                    T.barrier_arrive(free[k % STAGES])
                T.copy(acc, C[by * BM, 0])

    return main


def one_group():
    """All threads load and multiply, behind each other."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(M // BM, threads=128) as by:
            As = T.alloc_shared((BM, BK), "float16")
            Bs = T.alloc_shared((BK, BN), "float16")
            acc = T.alloc_fragment((BM, BN), "float32")
            full = T.alloc_barrier(128)
            T.clear(acc)
            for k in T.serial(K // BK):
                T.tma_copy(A[by * BM, k * BK], As, barrier=full)
                T.tma_copy(B[k * BK, 0], Bs, barrier=full)
                T.barrier_arrive(full)
                T.barrier_wait(full, k % 2)
                T.gemm(As, Bs, acc)
            T.copy(acc, C[by * BM, 0])

    return main


@pytest.mark.parametrize(
    ("program", "args"),
    [
        (one_thread, {"announced": True}),
        (one_thread, {"announced": False}),
        (one_group, {}),
    ],
)
def test_loads_that_name_tma_are_tma(program, args):
    made = kernel_of(program, **args)
    assert roads(made) == ["tma", "tma", "wgmma"]
    a, b, c = operands()
    run(made, a, b, c)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


def lagging(pending):
    """Two multiplying groups give a buffer back ``pending`` products later; registers are handed on."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=384):
            As = T.alloc_shared((STAGES + 1, M, BK), "float16")
            Bs = T.alloc_shared((STAGES + 1, BK, N), "float16")
            acc = T.alloc_fragment((M, N), "float32")
            full, free = T.alloc_barrier([128] * (STAGES + 1)), T.alloc_barrier([256] * (STAGES + 1))
            tx = T.get_thread_binding()
            if tx >= 256:
                T.dec_max_nreg(40)
                for k in T.serial(K // BK):
                    at = k % (STAGES + 1)
                    T.barrier_wait(free[at], (k // (STAGES + 1) + 1) % 2)
                    T.tma_copy(A[0, k * BK], As[at, :, :], barrier=full[at])
                    T.tma_copy(B[k * BK, 0], Bs[at, :, :], barrier=full[at])
                    T.barrier_arrive(full[at])
            else:
                T.inc_max_nreg(232)
                T.clear(acc)
                for k in T.serial(K // BK):
                    at = k % (STAGES + 1)
                    T.barrier_wait(full[at], k // (STAGES + 1) % 2)
                    T.wgmma_gemm(As[at, :, :], Bs[at, :, :], acc)
                    T.wait_wgmma(pending)
                    if k >= 1:
                        T.barrier_arrive(free[(k - 1) % (STAGES + 1)])
                T.wait_wgmma(0)
                T.copy(acc, C[0, 0])

    return main


def test_products_stay_under_way_where_their_author_says_so():
    made = replace(kernel_of(lagging, pending=1), options=((NO_ROLES, "its roles are its author's"),))
    (launch,) = lower(made, SM90A).launches
    pending = [stmt.pending for stmt in walk(launch.body) if isinstance(stmt, ProductsWait)]
    assert pending == [0, 1, 0], "all are waited for in the last trip and behind the loop"
    assert [stmt.count for stmt in walk(launch.body) if isinstance(stmt, SetRegisters)] == [40, 232]
    a, b, c = operands()
    run(made, a, b, c)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


def staged(rows, writes_beside):
    """Tiles leave through shared memory, the last one in part; ``writes_beside``: threads change the result
    behind that."""

    @T.prim_func
    def main(A: T.Tensor((rows, 64), "float16"), C: T.Tensor((rows, 64), "float16")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 64), "float16")
            Cs = T.alloc_shared((64, 64), "float16")
            full = T.alloc_barrier(128)
            for k in T.serial(T.ceildiv(rows, 64)):
                T.tma_copy(A[k * 64, 0], As, barrier=full)
                T.barrier_arrive(full)
                T.barrier_wait(full, k % 2)
                for i, j in T.Parallel(64, 64):
                    Cs[i, j] = As[i, j] * T.float16(2)
                T.copy(Cs, C[k * 64, 0])
            if writes_beside:
                for i in T.Parallel(64):
                    C[0, i] = C[0, i] + T.float16(1)

    return main


@pytest.mark.parametrize(("writes_beside", "stores"), [(False, 1), (True, 0)])
def test_whole_tiles_leave_by_tma_unless_the_launch_reads_them(writes_beside, stores):
    made = kernel_of(staged, rows=200, writes_beside=writes_beside)
    (launch,) = lower(made, SM90A).launches
    assert sum(isinstance(stmt, TensorStore) for stmt in walk(launch.body)) == stores
    a = np.random.default_rng(4).integers(-8, 9, (200, 64)).astype(np.float16)
    c = np.zeros_like(a)
    run(made, a, c)
    wanted = 2 * a
    wanted[0] += writes_beside
    np.testing.assert_array_equal(c, wanted)
