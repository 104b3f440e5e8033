"""Routing of tokens to experts, in the factory form: softmax of the scores, the best k, their weights."""

from __future__ import annotations

import numpy as np
from tile_math import LOG2_E, f32

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-2, -1])
def topk_gating(M, E, k=8, dtype="float32", renormalise=True, rows=8, bE=0, bk=0, threads=128):
    """The k largest of each row's softmax, largest first, and where they stand; ties go to the lower index.

    ``renormalise``: the k weights of a token sum to 1, otherwise they are what the softmax over all E gives.
    Where E or k is a runtime value, ``bE`` or ``bk`` is the most that it may be (a guard of the manifest).
    """
    columns, most = bE or E, bk or k

    @T.prim_func
    def main(
        scores: T.Tensor((M, E), dtype),
        weights: T.Tensor((M, k), "float32"),
        experts: T.Tensor((M, k), "int32"),
    ):
        """Weights and numbers of the k best experts of each token."""
        with T.Kernel(T.ceildiv(M, rows), threads=threads) as b:
            x, place = (T.alloc_fragment((rows, columns), kind) for kind in ("float32", "int32"))
            top, best, total = (T.alloc_fragment((rows,), "float32") for _ in range(3))
            at = T.alloc_fragment((rows,), "int32")
            chosen, numbers = (T.alloc_fragment((rows, most), kind) for kind in ("float32", "int32"))
            if bE:
                T.annotate_safe_value({scores: -T.infinity(dtype)})
            if bk:
                T.clear(chosen)
            T.copy(scores[b * rows, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(rows, columns):
                x[i, j] = T.exp2((x[i, j] - top[i]) * LOG2_E)
            if not renormalise:
                T.reduce_sum(x, total, dim=1)
            for r in T.serial(k):
                T.reduce_max(x, best, dim=1)
                for i, j in T.Parallel(rows, columns):
                    place[i, j] = T.if_then_else(x[i, j] == best[i], j, E)
                T.reduce_min(place, at, dim=1)
                for i, j in T.Parallel(rows, columns):
                    x[i, j] = T.if_then_else(j == at[i], -1.0, x[i, j])
                for i in T.Parallel(rows):
                    chosen[i, r] = best[i]
                    numbers[i, r] = at[i]
            if renormalise:
                T.reduce_sum(chosen, total, dim=1)
            for i, r in T.Parallel(rows, most):
                weights[b * rows + i, r] = chosen[i, r] / total[i]
                experts[b * rows + i, r] = numbers[i, r]

    return main


def topk_gating_reference(scores, k=8, renormalise=True):
    """NumPy twin of :func:`topk_gating`."""
    x = f32(scores).astype(np.float64)
    weights = np.exp(x - x.max(axis=1, keepdims=True))
    experts = np.argsort(-x, axis=1, kind="stable")[:, :k]
    chosen = np.take_along_axis(weights, experts, axis=1)
    total = (chosen if renormalise else weights).sum(axis=1, keepdims=True)
    return (chosen / total).astype(np.float32), experts.astype(np.int32)
