"""Linear attention with gates, chunk by chunk: the state stays in registers, a chunk's own part goes through
scores as attention does, decays are sums of gates."""

from __future__ import annotations

import numpy as np
from family_math import LOG2_E, wide
from online_softmax import FAST

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-2, -1], pass_configs=FAST)
def gated_chunks(B, S, H, DK, DV, chunk=64, bV=64, num_stages=2, threads=128, dtype="bfloat16"):
    """h_t = exp(g_t) h_{t-1} + k_t v_t^T, o_t = q_t h_t: a block has all of DK, ``bV`` columns of the state,
    and walks the chunks. S of whole chunks."""

    @T.prim_func
    def main(
        Q: T.Tensor([B, S, H, DK], dtype),
        K: T.Tensor([B, S, H, DK], dtype),
        V: T.Tensor([B, S, H, DV], dtype),
        G: T.Tensor([B, H, S], "float32"),
        O: T.Tensor([B, S, H, DV], dtype),
        last: T.Tensor([B, H, DK, DV], "float32"),
    ):
        with T.Kernel(T.ceildiv(DV, bV), H, B, threads=threads) as (bx, by, bz):
            q, k = T.alloc_shared([chunk, DK], dtype), T.alloc_shared([chunk, DK], dtype)
            k_late, v = T.alloc_shared([chunk, DK], dtype), T.alloc_shared([chunk, bV], dtype)
            g = T.alloc_shared([chunk], "float32")
            scores, P = T.alloc_fragment([chunk, chunk], "float32"), T.alloc_shared([chunk, chunk], dtype)
            state, state_s = T.alloc_fragment([DK, bV], "float32"), T.alloc_shared([DK, bV], dtype)
            o, o_s = T.alloc_fragment([chunk, bV], "float32"), T.alloc_shared([chunk, bV], dtype)
            T.clear(state)
            for c in T.Pipelined(S // chunk, num_stages=num_stages):
                row = c * chunk
                T.copy(Q[bz, row : row + chunk, by, :], q)
                T.copy(K[bz, row : row + chunk, by, :], k)
                T.copy(V[bz, row : row + chunk, by, bx * bV : (bx + 1) * bV], v)
                T.copy(G[bz, by, row : row + chunk], g)
                T.cumsum(g)
                T.copy(state, state_s)
                T.gemm(q, state_s, o, clear_accum=True)
                for i, d in T.Parallel(chunk, bV):
                    o[i, d] *= T.exp2(g[i] * LOG2_E)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    P[i, j] = T.if_then_else(i >= j, scores[i, j] * T.exp2((g[i] - g[j]) * LOG2_E), 0)
                T.gemm(P, v, o)
                T.copy(o, o_s)
                T.copy(o_s, O[bz, row : row + chunk, by, bx * bV : (bx + 1) * bV])
                for i, d in T.Parallel(chunk, DK):
                    k_late[i, d] = k[i, d] * T.exp2((g[chunk - 1] - g[i]) * LOG2_E)
                for i, d in T.Parallel(DK, bV):
                    state[i, d] *= T.exp2(g[chunk - 1] * LOG2_E)
                T.gemm(k_late, v, state, transpose_A=True)
            T.copy(state, last[bz, by, :, bx * bV : (bx + 1) * bV])

    return main


# ---- references and inputs ----


def gated_chunks_reference(Q, K, V, G):
    out, last = np.zeros(V.shape, np.float32), np.zeros((*G.shape[:2], Q.shape[3], V.shape[3]), np.float32)
    for b, h in np.ndindex(G.shape[:2]):
        q, k, v = (wide(x[b, :, h]) for x in (Q, K, V))
        g = np.cumsum(G[b, h])
        decay = np.tril(np.exp(np.minimum(g[:, None] - g[None, :], 0)))
        out[b, :, h] = q @ k.T * decay @ v
        last[b, h] = (k * np.exp(g[-1] - g)[:, None]).T @ v
    return out, last


def gated_chunks_inputs(dims, rng):
    """Gates are logarithms of numbers between 0.7 and 1."""
    B, S, H, DK, DV = (dims[name] for name in ("B", "S", "H", "DK", "DV"))
    floats = [rng.standard_normal((B, S, H, width)) * 0.3 for width in (DK, DK, DV)]
    return [*floats, np.log(rng.uniform(0.7, 1.0, (B, H, S)))]
