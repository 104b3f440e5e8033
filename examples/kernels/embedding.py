"""Embedding lookups, in the eager form: a plain table, and BERT's three tables with their LayerNorm."""

from __future__ import annotations

import numpy as np
from norm import center, divide, inverse_rms
from tile_math import f32, normalise_reference

import tilec
import tilec.language as T


@tilec.jit
def embedding(ids, table, dtype: str = "float32", rows: int = 4, bN: int = 0, threads: int = 128):
    """Y[t] = table[ids[t]]; an id outside the table gives zeros.

    A block has ``bN`` columns of ``rows`` tokens, or with 0 all of them. On GPUs a number of columns that is
    compiled in is asked for at once, one that is not an element a thread after the other.
    """
    tokens, V, D = T.const("tokens V D")
    ids: T.Tensor[[tokens], T.int32]
    table: T.Tensor[[V, D], dtype]
    Y = T.empty((tokens, D), dtype)
    with T.Kernel(T.ceildiv(tokens, rows), T.ceildiv(D, bN) if bN else 1, threads=threads) as (bt, bd):
        for i, j in T.Parallel(rows, bN or D):
            Y[bt * rows + i, bd * bN + j] = table[ids[bt * rows + i], bd * bN + j]
    return Y


@tilec.jit
def bert_embedding(
    ids,
    positions,
    types,
    word,
    position,
    kind,
    G,
    B,
    eps: float = 1e-12,
    dtype: str = "float32",
    rows: int = 4,
    threads: int = 128,
):
    """Y[t] = layernorm(word[ids[t]] + position[positions[t]] + kind[types[t]]) * G + B."""
    tokens, V, D, S, U = T.const("tokens V D S U")
    ids: T.Tensor[[tokens], T.int32]
    positions: T.Tensor[[tokens], T.int32]
    types: T.Tensor[[tokens], T.int32]
    word: T.Tensor[[V, D], dtype]
    position: T.Tensor[[S, D], dtype]
    kind: T.Tensor[[U, D], dtype]
    G: T.Tensor[[D], dtype]
    B: T.Tensor[[D], dtype]
    Y = T.empty((tokens, D), dtype)
    with T.Kernel(T.ceildiv(tokens, rows), threads=threads) as b:
        x = T.alloc_fragment((rows, D), "float32")
        sq = T.alloc_fragment((rows, D), "float32")
        stat = T.alloc_fragment((rows,), "float32")
        for i, j in T.Parallel(rows, D):
            t = b * rows + i
            x[i, j] = word[ids[t], j] + position[positions[t], j] + kind[types[t], j]
        T.reduce_sum(x, stat, dim=1)
        divide(stat, D, rows)
        center(x, stat, rows, D, D)
        for i, j in T.Parallel(rows, D):
            sq[i, j] = x[i, j] * x[i, j]
        inverse_rms(sq, stat, rows, D, eps)
        for i, j in T.Parallel(rows, D):
            Y[b * rows + i, j] = x[i, j] * stat[i] * G[j] + B[j]
    return Y


def embedding_reference(ids, table):
    """NumPy twin of :func:`embedding`."""
    return table[ids]


def bert_embedding_reference(ids, positions, types, word, position, kind, G, B, eps=1e-12):
    """NumPy twin of :func:`bert_embedding`."""
    x = f32(word)[ids] + f32(position)[positions] + f32(kind)[types]
    return normalise_reference(x, eps, center=True) * f32(G) + f32(B)


def embedding_inputs(dims, rng, dtype="float32"):
    """Random ids inside the table."""
    ids = rng.integers(0, dims["V"], dims["tokens"]).astype(np.int32)
    return [ids, rng.standard_normal((dims["V"], dims["D"])).astype(dtype)]


def bert_embedding_inputs(dims, rng, dtype="float32"):
    """Random ids, positions and types inside their tables."""
    D, tokens = dims["D"], dims["tokens"]
    picks = [rng.integers(0, dims[name], tokens).astype(np.int32) for name in ("V", "S", "U")]
    tables = [rng.standard_normal((dims[name], D)).astype(dtype) for name in ("V", "S", "U")]
    return [*picks, *tables, *(rng.standard_normal(D).astype(dtype) for _ in range(2))]
