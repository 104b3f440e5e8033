"""Latent attention with roles by hand: one group loads, one makes the weights and the left half of the
output, one the right half; 512 + 64 elements a key, 64 heads a block."""

from __future__ import annotations

import numpy as np
from family_math import LOG2_E, attend, wide
from online_softmax import FAST, FULL_ROW

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1], pass_configs=FAST)
def mla_by_hand(B, H, Sk, half=256, pe=64, rows=64, bN=64, stages=2, dtype="bfloat16"):
    """One query a sequence. Weights and corrections of rows pass from group to group through shared memory.
    Sk of whole tiles."""
    scale = (2 * half + pe) ** -0.5 * LOG2_E
    width = 2 * half

    @T.prim_func
    def main(
        Q: T.Tensor([B, H, width], dtype),
        Q_pe: T.Tensor([B, H, pe], dtype),
        KV: T.Tensor([B, Sk, width], dtype),
        K_pe: T.Tensor([B, Sk, pe], dtype),
        O: T.Tensor([B, H, width], dtype),
    ):
        with T.Kernel(T.ceildiv(H, rows), B, threads=384) as (hid, b):
            Q_l, Q_r = T.alloc_shared([rows, half], dtype), T.alloc_shared([rows, half], dtype)
            Q_t = T.alloc_shared([rows, pe], dtype)
            K_l, K_r = (T.alloc_shared([stages, bN, half], dtype) for _ in range(2))
            K_t = T.alloc_shared([stages, bN, pe], dtype)
            P, corr_s = T.alloc_shared([rows, bN], dtype), T.alloc_shared([rows], "float32")
            total_s = T.alloc_shared([rows], "float32")
            q_full = T.alloc_barrier(128)
            full, free = T.alloc_barrier([128] * stages), T.alloc_barrier([256] * stages)
            made, used = T.alloc_barrier(128), T.alloc_barrier(128)
            tx = T.get_thread_binding()
            trips = T.ceildiv(Sk, bN)
            if tx < 128:
                T.inc_max_nreg(240)
                o_l, S = T.alloc_fragment([rows, half], "float32"), T.alloc_fragment([rows, bN], "float32")
                top, old, corr, part, total = [T.alloc_fragment([rows], "float32") for _ in range(5)]
                T.clear(o_l)
                T.clear(total)
                T.fill(top, -T.infinity("float32"))
                T.mbarrier_wait_parity(q_full, 0)
                for k in T.serial(trips):
                    at = k % stages
                    T.mbarrier_wait_parity(full[at], (k // stages) % 2)
                    T.gemm(Q_l, K_l[at, :, :], S, transpose_B=True, clear_accum=True, policy=FULL_ROW)
                    T.gemm(Q_r, K_r[at, :, :], S, transpose_B=True, policy=FULL_ROW)
                    T.gemm(Q_t, K_t[at, :, :], S, transpose_B=True, policy=FULL_ROW)
                    T.copy(top, old)
                    T.reduce_max(S, top, dim=1, clear=False)
                    for i in T.Parallel(rows):
                        corr[i] = T.exp2((old[i] - top[i]) * scale)
                    for i, j in T.Parallel(rows, bN):
                        S[i, j] = T.exp2((S[i, j] - top[i]) * scale)
                    T.reduce_sum(S, part, dim=1)
                    for i in T.Parallel(rows):
                        total[i] = total[i] * corr[i] + part[i]
                    T.mbarrier_wait_parity(used, (k % 2) ^ 1)
                    T.copy(corr, corr_s)
                    T.copy(S, P)
                    T.mbarrier_arrive(made)
                    for i, d in T.Parallel(rows, half):
                        o_l[i, d] *= corr[i]
                    T.gemm(P, K_l[at, :, :], o_l, policy=FULL_ROW)
                    T.mbarrier_arrive(free[at])
                T.mbarrier_wait_parity(used, (trips % 2) ^ 1)
                T.copy(total, total_s)
                T.mbarrier_arrive(made)
                for i, d in T.Parallel(rows, half):
                    o_l[i, d] /= total[i]
                T.copy(o_l, O[b, hid * rows : (hid + 1) * rows, 0:half])
            elif tx < 256:
                T.inc_max_nreg(168)
                o_r = T.alloc_fragment([rows, half], "float32")
                T.clear(o_r)
                for k in T.serial(trips):
                    at = k % stages
                    T.mbarrier_wait_parity(made, k % 2)
                    for i, d in T.Parallel(rows, half):
                        o_r[i, d] *= corr_s[i]
                    T.mbarrier_wait_parity(full[at], (k // stages) % 2)
                    T.gemm(P, K_r[at, :, :], o_r, policy=FULL_ROW)
                    T.mbarrier_arrive(used)
                    T.mbarrier_arrive(free[at])
                T.mbarrier_wait_parity(made, trips % 2)
                for i, d in T.Parallel(rows, half):
                    o_r[i, d] /= total_s[i]
                T.copy(o_r, O[b, hid * rows : (hid + 1) * rows, half:width])
            else:
                T.dec_max_nreg(80)
                first = hid * rows
                T.tma_copy(Q[b, first : first + rows, 0:half], Q_l, barrier=q_full)
                T.tma_copy(Q[b, first : first + rows, half:width], Q_r, barrier=q_full)
                T.tma_copy(Q_pe[b, first : first + rows, :], Q_t, barrier=q_full)
                T.mbarrier_arrive(q_full)
                for k in T.serial(trips):
                    at, row = k % stages, k * bN
                    T.mbarrier_wait_parity(free[at], (k // stages) % 2 ^ 1)
                    T.tma_copy(KV[b, row : row + bN, 0:half], K_l[at, :, :], barrier=full[at])
                    T.tma_copy(KV[b, row : row + bN, half:width], K_r[at, :, :], barrier=full[at])
                    T.tma_copy(K_pe[b, row : row + bN, :], K_t[at, :, :], barrier=full[at])
                    T.mbarrier_arrive(full[at])

    return main


# ---- references ----


def mla_by_hand_reference(Q, Q_pe, KV, K_pe):
    out = np.zeros(Q.shape, np.float32)
    for b in range(len(Q)):
        q, k = (np.concatenate([wide(x[b]), wide(y[b])], -1) for x, y in ((Q, Q_pe), (KV, K_pe)))
        out[b] = attend(q, k, KV[b])[0]
    return out
