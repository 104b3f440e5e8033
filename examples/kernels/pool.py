"""Mean pooling of token vectors into unit sentence vectors, in the eager form."""

from __future__ import annotations

import numpy as np
from tile_math import f32

import tilec
import tilec.language as T

#: A norm below this is not divided by, as in torch.nn.functional.normalize.
SMALLEST_NORM = 1e-12


@tilec.jit
def mean_pool(X, starts, lengths, dtype: str = "float32", out_dtype: str = "", threads: int = 128):
    """Y[b] = mean of rows starts[b] to starts[b] + lengths[b] - 1 of X, scaled to unit length; ``out_dtype``
    is that of X where it is not given.

    Sentences may lie back to back (ragged) or at a fixed pitch (padded): only ``starts`` differs. A sentence
    of length 0 gives zeros.
    """
    tokens, D, B, ldx = T.const("tokens D B ldx")
    X: T.StridedTensor[[tokens, D], [ldx, 1], dtype]
    starts: T.Tensor[[B], T.int32]
    lengths: T.Tensor[[B], T.int32]
    Y = T.empty((B, D), out_dtype or dtype)
    with T.Kernel(B, threads=threads) as b:
        mean = T.alloc_fragment((D,), "float32")
        sq = T.alloc_fragment((D,), "float32")
        norm = T.alloc_fragment((1,), "float32")
        T.clear(mean)
        for t in T.serial(lengths[b]):
            for j in T.Parallel(D):
                mean[j] = mean[j] + T.cast(X[starts[b] + t, j], "float32")
        count = T.cast(T.max(lengths[b], 1), "float32")
        for j in T.Parallel(D):
            mean[j] = mean[j] / count
        for j in T.Parallel(D):
            sq[j] = mean[j] * mean[j]
        T.reduce_sum(sq, norm, dim=0)
        scale = 1.0 / T.max(T.sqrt(norm[0]), SMALLEST_NORM)
        for j in T.Parallel(D):
            Y[b, j] = mean[j] * scale
    return Y


def mean_pool_reference(X, starts, lengths):
    """NumPy twin of :func:`mean_pool`."""
    rows = [f32(X)[s : s + n].sum(axis=0) / max(n, 1) for s, n in zip(starts, lengths, strict=True)]
    means = np.stack(rows) if rows else np.zeros((0, X.shape[1]), np.float32)
    return means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), SMALLEST_NORM)


def mean_pool_inputs(dims, rng, dtype="float32"):
    """Sentences of random length, back to back."""
    tokens, D, B = (dims[name] for name in ("tokens", "D", "B"))
    ends = np.sort(rng.integers(0, tokens + 1, B)).astype(np.int32)
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int32) if B else ends
    return [rng.standard_normal((tokens, D)).astype(dtype), starts, ends - starts]
