"""What stands around the products of a mixture of experts: tokens in the order of their experts, and sums
over a token's experts.

A token has k experts. The n = tokens * k pairs of the two are numbered token by token: pair p is of token
p // k. Behind :func:`tokens_by_expert` row r of the products has token ``tokens[r]``, experts one behind the
other, and pair p lies in row ``rows[p]``.
"""

from __future__ import annotations

import numpy as np
from tile_math import f32

import tilec
import tilec.language as T


@tilec.jit
def tokens_by_expert(n, G, blk=1024, threads=128):
    """The rows of ``linear_grouped``: which token each has, which row each pair has, and where experts begin.

    One block for each of the G experts: it counts the pairs of those before it, then numbers its own in their
    order. Experts outside of 0 to G - 1 get no row.
    """

    @T.prim_func
    def main(
        experts: T.Tensor((n,), "int32"),
        k: T.int32,
        offsets: T.Tensor((G + 1,), "int32"),
        tokens: T.Tensor((n,), "int32"),
        rows: T.Tensor((n,), "int32"),
    ):
        """Pairs sorted by expert; equal ones stay in order."""
        with T.Kernel(G, threads=threads) as g:
            smaller = T.alloc_fragment((blk,), "int32")
            own = T.alloc_shared((blk,), "int32")
            first, found = T.alloc_fragment((1,), "int32"), T.alloc_var("int32")
            T.annotate_safe_value({experts: G})
            T.clear(first)
            for c in T.serial(T.ceildiv(n, blk)):
                for j in T.Parallel(blk):
                    smaller[j] = T.if_then_else(experts[c * blk + j] < g, 1, 0)
                T.reduce_sum(smaller, first, dim=0, clear=False)
            found = first[0]
            offsets[g] = found
            for c in T.serial(T.ceildiv(n, blk)):
                for j in T.Parallel(blk):
                    own[j] = T.if_then_else(experts[c * blk + j] == g, 1, 0)
                T.cumsum(own, dim=0)
                for j in T.Parallel(blk):
                    if experts[c * blk + j] == g:
                        rows[c * blk + j] = found + own[j] - 1
                        tokens[found + own[j] - 1] = (c * blk + j) // k
                found += own[blk - 1]
            if g == G - 1:
                offsets[G] = found

    return main


@tilec.jit(out_idx=[-1])
def sum_of_experts(n, M, k, D, shared=False, dtype="bfloat16", rows=4, bN=1024, threads=128):
    """Y[t] = sum over r < k of weights[t, r] * X[places[t, r]], in float32.

    ``shared``: sigmoid(gate[t]) * S[t] is added, the expert that all tokens have; otherwise ``S`` and
    ``gate`` mean nothing.
    """

    @T.prim_func
    def main(
        X: T.Tensor((n, D), dtype),
        places: T.Tensor((M, k), "int32"),
        weights: T.Tensor((M, k), "float32"),
        S: T.Tensor((M, D), dtype),
        gate: T.Tensor((M,), dtype),
        Y: T.Tensor((M, D), dtype),
    ):
        """The weighted sum of what a token's experts made of it."""
        with T.Kernel(T.ceildiv(D, bN), T.ceildiv(M, rows), threads=threads) as (bx, by):
            acc = T.alloc_fragment((rows, bN), "float32")
            if shared:
                for i, j in T.Parallel(rows, bN):
                    t = by * rows + i
                    acc[i, j] = T.sigmoid(T.cast(gate[t], "float32")) * T.cast(S[t, bx * bN + j], "float32")
            else:
                T.clear(acc)
            for r in T.serial(k):
                for i, j in T.Parallel(rows, bN):
                    t = by * rows + i
                    acc[i, j] += weights[t, r] * T.cast(X[places[t, r], bx * bN + j], "float32")
            T.copy(acc, Y[by * rows, bx * bN])

    return main


def tokens_by_expert_inputs(dims, rng):
    """Two experts a token; some experts may have none."""
    return [rng.integers(0, dims["G"], dims["n"]).astype(np.int32), 2]


def sum_of_experts_reference(X, places, weights, S, gate, shared=False):
    """NumPy twin of :func:`sum_of_experts`."""
    made = (f32(weights)[..., None] * f32(X)[places]).sum(axis=1)
    return made + f32(S) / (1 + np.exp(-f32(gate)))[:, None] if shared else made


def sum_of_experts_shared_reference(X, places, weights, S, gate):
    """:func:`sum_of_experts_reference` with the expert that all tokens have."""
    return sum_of_experts_reference(X, places, weights, S, gate, shared=True)


def sum_of_experts_inputs(dims, rng):
    """Random rows for the experts of each token."""
    n, M, k, D = (dims[name] for name in ("n", "M", "k", "D"))
    return [
        rng.standard_normal((n, D)),
        rng.integers(0, n, (M, k)).astype(np.int32),
        rng.uniform(0, 1, (M, k)).astype(np.float32),
        rng.standard_normal((M, D)),
        rng.standard_normal(M),
    ]
