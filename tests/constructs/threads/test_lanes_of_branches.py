"""Some lanes of a warp, or one warp, that wait for each other in branches: on targets too that have waits of
whole warps and blocks alone."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated
from metal_source import OnMetal

import tilec.language as T
from tilec.ir.interp.values import undefined

X = np.arange(64, dtype=np.int32) * 3 % 29


@T.prim_func
def meeting_in_memory(X: T.Tensor((64,), "int32"), Y: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        S = T.alloc_shared((64,), "int32")
        S[tx] = X[tx]
        if tx < 8:
            S[tx] = S[tx] + S[tx + 8]
            for k in T.serial(3):
                turned = S[7 - tx] + k
                S[tx] = turned
        Y[tx] = S[tx]


@T.prim_func
def placed_by_variables(X: T.Tensor((64,), "int32"), Y: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        T.sync_threads()
        if tx < 7:
            at = T.alloc_var("int32")
            at = tx
            for i in T.serial(9):
                if X[i] % 7 != tx:
                    Y[at] = X[i]
                    at += 7


@T.prim_func
def waiting_by_a_known_condition(X: T.Tensor((64,), "int32"), Y: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        S = T.alloc_shared((64,), "int32")
        S[tx] = X[tx]
        T.sync_threads()
        if tx < 8:
            other = S[7 - tx]
            T.sync_warp()
            S[tx] = other
        Y[tx] = S[tx]


@T.prim_func
def waiting_by_data(X: T.Tensor((64,), "int32"), Y: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        S = T.alloc_shared((64,), "int32")
        S[tx] = X[tx]
        T.sync_threads()
        if X[tx] % 2 == 0:
            for k in T.serial(2):
                other = S[tx ^ 2]
                T.sync_warp()
                S[tx] = other + k
                T.sync_warp()
        else:
            S[tx] = -S[tx]
        Y[tx] = S[tx]


@pytest.mark.parametrize(
    "kernel", [meeting_in_memory, placed_by_variables, waiting_by_a_known_condition, waiting_by_data]
)
def test_lanes_of_a_branch_wait(kernel, tmp_path):
    (wanted,) = agree(kernel, X, targets=["cpu", "sm_80", "gfx942"])
    found = undefined(wanted.shape, wanted.dtype)
    OnMetal(elaborated(kernel, (X,), None, {}, {}), tmp_path)([X, found], {})
    assert np.array_equal(found, wanted)


@T.prim_func
def whole_warps(X: T.Tensor((64,), "int32"), Y: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        S, U = T.alloc_shared((64,), "int32"), T.alloc_shared((64,), "int32")
        f, total = T.alloc_fragment((64,), "int32"), T.alloc_fragment((1,), "int32")
        S[tx] = X[tx]
        T.sync_threads()
        if tx < 32:
            for j in T.Parallel(64):
                U[j] = X[j] * 2
            for j in T.Parallel(64):
                f[j] = U[63 - j] + j
            T.reduce_sum(f, total)
            Y[tx] = f[tx] + total[0]
        else:
            other = S[95 - tx]
            S[tx] = other * 3
            Y[tx] = S[95 - tx]


def test_a_warp_of_its_own_needs_no_barrier_of_the_block(tmp_path):
    (wanted,) = agree(whole_warps, X, targets=["cpu", "sm_80", "sm_90a", "gfx942", "gfx1100"])
    turned = X[::-1] * 2 + np.arange(64)
    assert np.array_equal(wanted, [*(turned + turned.sum())[:32], *(X[32:] * 3)])
    found = undefined(wanted.shape, wanted.dtype)
    OnMetal(elaborated(whole_warps, (X,), None, {}, {}), tmp_path)([X, found], {})
    assert np.array_equal(found, wanted)
