"""Products of tokens with the weights of their experts, in the factory form.

Tokens are sorted by expert: those of expert g are rows offsets[g] to offsets[g + 1] - 1. ``weight`` is stored
(G, N, K). The grid has a block row for every tile of tokens and one more per expert, which is enough for any
split of the tokens; a block finds its expert by walking over the offsets.
"""

from __future__ import annotations

import numpy as np
from tile_math import f32

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def linear_grouped(tokens, N, K, G, dtype="bfloat16", bM=64, bN=128, bK=64, num_stages=2, threads=128):
    """C[m] = A[m] @ W[g].T for the expert g of row m; rows of no expert are left as they are."""

    @T.prim_func
    def main(
        A: T.Tensor((tokens, K), dtype),
        W: T.Tensor((G, N, K), dtype),
        offsets: T.Tensor((G + 1,), "int32"),
        C: T.Tensor((tokens, N), dtype),
    ):
        """C = A @ W[g].T, row by row with the weights of the row's expert."""
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(tokens, bM) + G, threads=threads) as (bx, by):
            As, Ws = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            acc = T.alloc_fragment((bM, bN), "float32")
            expert, row, end, before = (T.alloc_var("int32") for _ in range(4))
            for g in T.serial(G):
                tiles = T.ceildiv(offsets[g + 1] - offsets[g], bM)
                if (by >= before) & (by < before + tiles):
                    expert = g
                    row = offsets[g] + (by - before) * bM
                    end = offsets[g + 1]
                before += tiles
            e, first, rows = expert + 0, row + 0, end - row
            if (rows > 0) & (e >= 0) & (e < G):
                T.clear(acc)
                for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                    T.copy(A[first, ko * bK], As)
                    T.copy(W[e, bx * bN : (bx + 1) * bN, ko * bK : (ko + 1) * bK], Ws)
                    T.gemm(As, Ws, acc, transpose_B=True)
                for i, j in T.Parallel(bM, bN):
                    if i < rows:
                        C[first + i, bx * bN + j] = acc[i, j]

    return main


def linear_grouped_reference(A, W, offsets):
    """NumPy twin of :func:`linear_grouped`; rows of no expert are NaN."""
    out = np.full((A.shape[0], W.shape[1]), np.nan, np.float32)
    for g, weight in enumerate(f32(W)):
        first, end = offsets[g], offsets[g + 1]
        out[first:end] = f32(A[first:end]) @ weight.T
    return out


def linear_grouped_inputs(dims, rng):
    """Every token has an expert; some experts may have none."""
    tokens, N, K, G = (dims[name] for name in ("tokens", "N", "K", "G"))
    a = rng.standard_normal((tokens, K))
    w = rng.standard_normal((G, N, K)) * K**-0.5
    cuts = np.sort(rng.integers(0, tokens + 1, G - 1))
    return [a, w, np.concatenate([[0], cuts, [tokens]]).astype(np.int32)]
