"""Attention in float8: both products in e4m3, weights narrowed between them, scales for each head or block of
rows. Values come transposed, as such products want them, or as they are, and are turned in shared memory."""

from __future__ import annotations

import numpy as np
from family_math import LOG2_E, attend, wide
from online_softmax import FAST, FULL_ROW, vectors, weigh

import tilec
import tilec.language as T

FP8 = "float8_e4m3fn"
#: Weights are at most 1; times this they use the range of e4m3 (largest 448) better.
WIDER = 256.0


@tilec.jit(out_idx=[-1], pass_configs=FAST)
def values_transposed(B, H, S, D, bM=128, bN=128, num_stages=2, threads=256, dtype="bfloat16"):
    """Vt is (batch, head, element, sequence). A scale for each head of Q, K and V."""
    scale = (1.0 / D) ** 0.5 * LOG2_E
    shape = [B, H, S, D]

    @T.prim_func
    def main(
        Q: T.Tensor(shape, FP8),
        K: T.Tensor(shape, FP8),
        Vt: T.Tensor([B, H, D, S], FP8),
        scales: T.Tensor([B, H, 3], "float32"),
        O: T.Tensor(shape, dtype),
    ):
        with T.Kernel(T.ceildiv(S, bM), H, B, threads=threads) as (bx, by, bz):
            Qs, Os = T.alloc_shared([bM, D], FP8), T.alloc_shared([bM, D], dtype)
            Ks, Vs = T.alloc_shared([bN, D], FP8), T.alloc_shared([D, bN], FP8)
            acc_s, P = T.alloc_fragment([bM, bN], "float32"), T.alloc_fragment([bM, bN], FP8)
            acc_o = T.alloc_fragment([bM, D], "float32")
            top, old, corr, part, total = vectors(bM)
            score_scale = scales[bz, by, 0] * scales[bz, by, 1] * scale
            T.copy(Q[bz, by, bx * bM : (bx + 1) * bM, :], Qs)
            T.clear(acc_o)
            T.clear(total)
            T.fill(top, -T.infinity("float32"))
            for k in T.Pipelined(T.ceildiv(S, bN), num_stages=num_stages):
                T.copy(K[bz, by, k * bN : (k + 1) * bN, :], Ks)
                T.gemm(Qs, Ks, acc_s, transpose_B=True, clear_accum=True, policy=FULL_ROW)
                T.copy(top, old)
                T.reduce_max(acc_s, top, dim=1, clear=False)
                for i in T.Parallel(bM):
                    corr[i] = T.exp2((old[i] - top[i]) * score_scale)
                for i, j in T.Parallel(bM, bN):
                    acc_s[i, j] = T.exp2((acc_s[i, j] - top[i]) * score_scale) * WIDER
                T.reduce_sum(acc_s, part, dim=1)
                for i in T.Parallel(bM):
                    total[i] = total[i] * corr[i] + part[i]
                for i, d in T.Parallel(bM, D):
                    acc_o[i, d] *= corr[i]
                T.copy(acc_s, P)
                T.copy(Vt[bz, by, :, k * bN : (k + 1) * bN], Vs)
                T.gemm(P, Vs, acc_o, transpose_B=True, policy=FULL_ROW)
            for i, d in T.Parallel(bM, D):
                acc_o[i, d] *= scales[bz, by, 2] / total[i]
            T.copy(acc_o, Os)
            T.copy(Os, O[bz, by, bx * bM : (bx + 1) * bM, :])

    return main


@tilec.jit(out_idx=[-1], pass_configs=FAST)
def values_turned(B, S, H, D, bM=128, bN=128, num_stages=2, threads=256, dtype="float16"):
    """Tensors are (batch, sequence, head, element), a scale for each 128 rows of Q and K and each head of V;
    the tile of V is turned in shared memory, weights go through a shared tile."""
    scale = (1.0 / D) ** 0.5 * LOG2_E
    shape, rows = [B, S, H, D], [B, H, T.ceildiv(S, 128)]

    @T.prim_func
    def main(
        Q: T.Tensor(shape, FP8),
        K: T.Tensor(shape, FP8),
        V: T.Tensor(shape, FP8),
        q_scale: T.Tensor(rows, "float32"),
        k_scale: T.Tensor(rows, "float32"),
        v_scale: T.Tensor([B, H], "float32"),
        O: T.Tensor(shape, dtype),
    ):
        with T.Kernel(T.ceildiv(S, bM), H, B, threads=threads) as (bx, by, bz):
            Qs, Os = T.alloc_shared([bM, D], FP8), T.alloc_shared([bM, D], dtype)
            Ks, Vs, Vt = (
                T.alloc_shared([bN, D], FP8),
                T.alloc_shared([bN, D], FP8),
                T.alloc_shared([D, bN], FP8),
            )
            acc_s, Ps = T.alloc_fragment([bM, bN], "float32"), T.alloc_shared([bM, bN], FP8)
            acc_o = T.alloc_fragment([bM, D], "float32")
            top, old, corr, part, total = vectors(bM)
            T.copy(Q[bz, bx * bM : (bx + 1) * bM, by, :], Qs)
            T.clear(acc_o)
            T.clear(total)
            T.fill(top, -T.infinity("float32"))
            for k in T.Pipelined(T.ceildiv(S, bN), num_stages=num_stages):
                T.copy(K[bz, k * bN : (k + 1) * bN, by, :], Ks)
                T.copy(V[bz, k * bN : (k + 1) * bN, by, :], Vs)
                T.clear(acc_s)
                T.gemm(Qs, Ks, acc_s, transpose_B=True, policy=FULL_ROW)
                block = q_scale[bz, by, bx * bM // 128] * k_scale[bz, by, k * bN // 128] * scale
                for i, j in T.Parallel(bM, bN):
                    hidden = k * bN + j >= S
                    acc_s[i, j] = T.if_then_else(hidden, -T.infinity("float32"), acc_s[i, j] * block)
                weigh(acc_s, Ps, acc_o, top, old, corr, part, total, 1.0, bM, bN, D)
                T.transpose(Vs, Vt)
                T.gemm(Ps, Vt, acc_o, transpose_B=True, policy=FULL_ROW)
            for i, d in T.Parallel(bM, D):
                acc_o[i, d] *= v_scale[bz, by] / total[i]
            T.copy(acc_o, Os)
            T.copy(Os, O[bz, bx * bM : (bx + 1) * bM, by, :])

    return main


# ---- references and inputs ----


def values_transposed_reference(Q, K, Vt, scales):
    out = np.zeros(Q.shape, np.float32)
    for b, h in np.ndindex(Q.shape[:2]):
        q, k, v = scales[b, h]
        out[b, h] = attend(wide(Q[b, h]) * q, wide(K[b, h]) * k, wide(Vt[b, h]).T * v)[0]
    return out


def _scales(rng, shape):
    return rng.uniform(0.5, 1.5, shape)


def values_transposed_inputs(dims, rng):
    B, H, S, D = (dims[name] for name in ("B", "H", "S", "D"))
    shapes = ((B, H, S, D), (B, H, S, D), (B, H, D, S))
    return [*(rng.standard_normal(shape) for shape in shapes), _scales(rng, (B, H, 3))]


def values_turned_reference(Q, K, V, q_scale, k_scale, v_scale):
    out, S = np.zeros(Q.shape, np.float32), Q.shape[1]
    for b, h in np.ndindex(Q.shape[0], Q.shape[2]):
        q, k = (np.repeat(each[b, h], 128)[:S, None] for each in (q_scale, k_scale))
        out[b, :, h] = attend(wide(Q[b, :, h]) * q, wide(K[b, :, h]) * k, wide(V[b, :, h]) * v_scale[b, h])[0]
    return out


def values_turned_inputs(dims, rng):
    B, S, H, D = (dims[name] for name in ("B", "S", "H", "D"))
    rows = (B, H, -(-S // 128))
    floats = [rng.standard_normal((B, S, H, D)) for _ in range(3)]
    return [*floats, _scales(rng, rows), _scales(rng, rows), _scales(rng, (B, H))]
