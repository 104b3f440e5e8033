"""Copies of a group behind which it arrives at a barrier: TMA brings them for those who wait there."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec
import tilec.language as T
from tilec.backends.cuda.emit.entry import lower_kernel
from tilec.backends.pipeline import lower
from tilec.targets import parse_target

M, N, K, STAGES = 128, 64, 192, 2


def product(kind, configs=()):
    """C = A B^T: one group brings tiles, another one multiplies them."""

    @tilec.jit(pass_configs=dict.fromkeys(("tl.disable_warp_specialized", *configs), True))
    def program():
        @T.prim_func
        def main(
            A: T.Tensor((M, K), "float16"), B: T.Tensor((N, K), "float16"), C: T.Tensor((M, N), "float32")
        ):
            with T.Kernel(M // 64, threads=256) as bx:
                a = T.alloc_shared((STAGES, 64, 64), "float16")
                b = T.alloc_shared((STAGES, N, 64), "float16")
                full, free = T.alloc_barrier([128] * STAGES), T.alloc_barrier([128] * STAGES)
                with T.ws(1):
                    for k in T.serial(K // 64):
                        T.mbarrier_wait_parity(free[k % STAGES], ((k // STAGES) & 1) ^ 1)
                        T.copy(A[bx * 64, k * 64], a[k % STAGES, :, :])
                        T.copy(B[0, k * 64], b[k % STAGES, :, :])
                        if kind == "own":
                            for i, j in T.Parallel(64, 64):
                                a[k % STAGES, i, j] = a[k % STAGES, i, j] * T.float16(2)
                        T.mbarrier_arrive(full[k % STAGES])
                with T.ws(0):
                    sums = T.alloc_fragment((64, N), "float32")
                    T.clear(sums)
                    for k in T.serial(K // 64):
                        T.mbarrier_wait_parity(full[k % STAGES], (k // STAGES) & 1)
                        T.gemm(a[k % STAGES, :, :], b[k % STAGES, :, :], sums, transpose_B=True)
                        T.mbarrier_arrive(free[k % STAGES])
                    T.copy(sums, C[bx * 64, 0])

        return main

    return program


def loads(kernel, *inputs):
    """How the tiles come."""
    target = parse_target("sm_90a")
    (launch,) = lower_kernel(lower(elaborated(kernel, inputs, None, {}, {}), target), target).launches
    return {
        road.statement: road.instruction for road in launch.roads if road.statement in ("A -> a", "B -> b")
    }


@pytest.mark.parametrize(
    ("kind", "configs", "a", "b"),
    [
        ("", (), "TMA, by hand", "TMA, by hand"),
        ("own", (), "vectors of 16 bytes", "vectors of 16 bytes"),
        ("", ("tl.disable_tma_lower",), "vectors of 16 bytes", "vectors of 16 bytes"),
    ],
)
def test_what_a_group_hands_on_by_a_barrier(kind, configs, a, b):
    rng = np.random.default_rng(2)
    A, B = (rng.integers(-3, 4, (rows, K)).astype(np.float16) for rows in (M, N))
    kernel = product(kind, configs)
    wanted = A.astype(np.float32) @ B.astype(np.float32).T * (2 if kind == "own" else 1)
    agree(kernel, A, B, expected=wanted)
    assert loads(kernel, A, B) == {"A -> a": a, "B -> b": b}
