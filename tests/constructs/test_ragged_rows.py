"""Rows that begin and end anywhere in memory: the same on every road, by vectors on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.nodes import RaggedThreadLoop
from tilec.backends.pipeline import lower
from tilec.ir.guards import Guard
from tilec.ir.nodes import walk
from tilec.targets import parse_target

SM80 = parse_target("sm_80")
OPEN = {"M": Guard(), "N": Guard(), "ldx": Guard()}
RNG = np.random.default_rng(0)


def scaled(M, N, ldx, dtype="float16", rows=2, bN=4096, threads=64):
    """Rows less their maximum, times a factor of the column."""

    @T.prim_func
    def main(
        X: T.StridedTensor((M, N), (ldx, 1), dtype), G: T.Tensor((N,), dtype), Y: T.Tensor((M, N), dtype)
    ):
        with T.Kernel(T.ceildiv(M, rows), threads=threads) as b:
            x, top = T.alloc_fragment((rows, bN), "float32"), T.alloc_fragment((rows,), "float32")
            for c in T.serial(T.ceildiv(N, bN)):
                T.copy(X[b * rows, c * bN], x)
                T.reduce_max(x, top, dim=1)
                for i, j in T.Parallel(rows, bN):
                    Y[b * rows + i, c * bN + j] = (x[i, j] - top[i]) * G[c * bN + j]

    return main


def shifted_stores(M, N, ldx, dtype="float16", bN=4096, threads=64):
    """Two tensors whose rows begin at other elements of a vector."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype), Z: T.Tensor((M, ldx), dtype)):
        with T.Kernel(M, threads=threads) as b:
            for j in T.Parallel(bN):
                Y[b, j] = X[b, j]
                Z[b, j] = X[b, j]

    return main


def below(X: np.ndarray, G: np.ndarray, bN: int = 4096) -> np.ndarray:
    """NumPy twin of `scaled`."""
    parts = []
    for start in range(0, X.shape[1], bN):
        part = X[:, start : start + bN].astype(np.float32)
        top = part.max(axis=1, keepdims=True)
        top = np.maximum(top, 0) if part.shape[1] < bN else top
        parts.append((part - top) * G[start : start + bN].astype(np.float32))
    return np.concatenate(parts, axis=1).astype(X.dtype)


def ragged(made) -> list[RaggedThreadLoop]:
    return [stmt for stmt in walk(lower(made, SM80).body) if isinstance(stmt, RaggedThreadLoop)]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    ("rows", "columns", "pitch"), [(3, 513, 513), (3, 4103, 4110), (2, 7, 7), (2, 600, 603)]
)
def test_rows_of_any_length_and_pitch(dtype, rows, columns, pitch):
    X = RNG.standard_normal((rows, pitch)).astype(dtype)[:, :columns]
    G = RNG.standard_normal(columns).astype(dtype)
    agree(scaled, X, G, dims=OPEN, args={"dtype": dtype}, expected=below(X, G), targets=("sm_80", "sm_90a"))


def test_columns_are_shifted_alike_in_all_loops_of_a_fragment():
    X, G = np.zeros((4, 520), np.float16), np.zeros(520, np.float16)
    found = ragged(elaborated(scaled, (X, G), OPEN, {}, {}))
    assert [loop.vector for loop in found] == [8, 8]
    assert all(str(loop.vars[-1].name).endswith("_place") for loop in found)


def test_rows_that_begin_at_vectors_are_not_shifted():
    X, G = np.zeros((4, 520), np.float16), np.zeros(520, np.float16)
    dims = {"M": Guard(), "N": Guard(div=8), "ldx": Guard()}
    found = ragged(elaborated(scaled, (X, G), dims, {}, {}))
    assert found
    assert not any(str(loop.vars[-1].name).endswith("_place") for loop in found)
    dims["ldx"] = Guard(div=8)
    assert not ragged(elaborated(scaled, (X, G), dims, {}, {}))


def test_stores_that_begin_apart_stay_as_they_are():
    X = np.zeros((4, 500), np.float16)
    assert not ragged(elaborated(shifted_stores, (X,), {"M": 4, "N": Guard(), "ldx": Guard()}, {}, {}))
