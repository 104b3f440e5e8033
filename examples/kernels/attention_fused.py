"""Self-attention over sequences back to back, on the rows of one fused projection, in the factory form."""

from __future__ import annotations

import numpy as np
from attention import attention_ragged_reference
from attention_blocks import LOWEST, softmax_step
from tile_math import LOG2_E

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def attention_fused(tokens, H, D, B, dtype="float16", bM=64, bN=64, num_stages=2, threads=128):
    """O = softmax(Q K^T / sqrt(D)) V inside each of B sequences.

    Sequence b owns rows starts[b] to starts[b] + lengths[b] - 1. Each row of QKV holds the queries of all
    heads, then the keys, then the values, as one product with the three weights on top of one another gives
    them. ``longest`` is at least the largest length; it sizes the grid. Rows of no sequence are left as they
    are.
    """
    scale = D**-0.5 * LOG2_E

    @T.prim_func
    def main(
        QKV: T.Tensor((tokens, 3, H, D), dtype),
        starts: T.Tensor((B,), "int32"),
        lengths: T.Tensor((B,), "int32"),
        longest: T.int32,
        O: T.Tensor((tokens, H, D), dtype),
    ):
        """Flash attention inside each sequence of a ragged batch, on fused rows."""
        with T.Kernel(T.ceildiv(longest, bM), H, B, threads=threads) as (bx, h, b):
            Qs, Ks = T.alloc_shared((bM, D), dtype), T.alloc_shared((bN, D), dtype)
            Vs = T.alloc_shared((bN, D), dtype)
            S, o = T.alloc_fragment((bM, bN), "float32"), T.alloc_fragment((bM, D), "float32")
            top, old, total, part = (T.alloc_fragment((bM,), "float32") for _ in range(4))
            P = S if dtype == "float32" else T.alloc_fragment((bM, bN), dtype)
            start, length = starts[b], lengths[b]
            T.copy(QKV[start + bx * bM : start + (bx + 1) * bM, 0, h, :], Qs)
            T.clear(o)
            T.clear(total)
            T.fill(top, LOWEST)
            steps = T.if_then_else(bx * bM < length, T.ceildiv(length, bN), 0)
            for k in T.Pipelined(steps, num_stages=num_stages):
                key = start + k * bN
                T.copy(QKV[key : key + bN, 1, h, :], Ks)
                T.gemm(Qs, Ks, S, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                for i, j in T.Parallel(bM, bN):
                    S[i, j] = T.if_then_else(k * bN + j < length, S[i, j], -T.infinity("float32"))
                softmax_step(S, o, top, old, total, part, scale, bM, bN, D)
                for j, d in T.Parallel(bN, D):
                    Vs[j, d] = T.if_then_else(k * bN + j < length, QKV[key + j, 2, h, d], 0)
                if dtype != "float32":
                    T.copy(S, P)
                T.gemm(P, Vs, o, policy=T.GemmWarpPolicy.FullRow)
            for i, d in T.Parallel(bM, D):
                if bx * bM + i < length:
                    O[start + bx * bM + i, h, d] = o[i, d] / total[i]

    return main


def attention_fused_reference(QKV, starts, lengths, longest=None):
    """NumPy twin of :func:`attention_fused`; rows of no sequence are NaN."""
    return attention_ragged_reference(*(QKV[:, part] for part in range(3)), starts, lengths)


def attention_fused_inputs(dims, rng):
    """Sequences back to back that cover every row."""
    tokens, H, D, B = (dims[name] for name in ("tokens", "H", "D", "B"))
    cuts = np.sort(rng.integers(0, tokens + 1, max(B - 1, 0)))
    bounds = np.concatenate([[0], cuts, [tokens]]).astype(np.int32)
    lengths = np.diff(bounds).astype(np.int32)[:B]
    return [rng.standard_normal((tokens, 3, H, D)), bounds[:B], lengths, int(lengths.max(initial=0))]
