"""Rows of a tensor that a list names, converted and scaled on their way to a product: on sm_90a cp.async
brings them as they are."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Alloc, walk
from tilec.targets import parse_target

ROWS, KEYS, TILE, CACHED = 64, 128, 64, 200


def scores(columns, dtype="int8", group=32, first=0):
    """Products of queries with rows of a cache, each group of columns with a scale of its own; rows begin at
    column ``first`` of the cache."""

    @T.prim_func
    def kernel(
        Q: T.Tensor((ROWS, columns), "float16"),
        X: T.Tensor((CACHED, first + columns), dtype),
        scales: T.Tensor((CACHED, columns // group), "float32"),
        places: T.Tensor((KEYS,), "int32"),
        S: T.Tensor((ROWS, KEYS), "float32"),
    ):
        with T.Kernel(1, threads=128):
            q, k = T.alloc_shared((ROWS, columns), "float16"), T.alloc_shared((TILE, columns), "float16")
            s = T.alloc_fragment((ROWS, TILE), "float32")
            T.copy(Q, q)
            for c in T.Pipelined(KEYS // TILE, num_stages=2):
                for i, j in T.Parallel(TILE, columns):
                    row = places[c * TILE + i]
                    k[i, j] = X[row, first + j].astype("float32") * scales[row, j // group]
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                T.copy(s, S[0, c * TILE])

    return kernel


def case(columns, dtype="int8", group=32, first=0):
    rng = np.random.default_rng(4)
    q = (rng.standard_normal((ROWS, columns)) / 8).astype(np.float16)
    shape = (CACHED, first + columns)
    x = rng.integers(-100, 100, shape).astype(np.int8) if dtype == "int8" else rng.standard_normal(shape)
    x = x.astype(np.float16) if dtype == "float16" else x
    scales = rng.uniform(0.005, 0.01, (CACHED, columns // group)).astype(np.float32)
    places = rng.integers(0, CACHED, KEYS).astype(np.int32)
    rows = x[places, first:].astype(np.float32) * scales[places].repeat(group, 1)
    return (q, x, scales, places), q.astype(np.float32) @ rows.astype(np.float16).astype(np.float32).T


def tiles(kernel, inputs):
    (launch,) = lower(elaborated(kernel, inputs, None, {}, {}), parse_target("sm_90a")).launches
    found = (stmt.buffer for stmt in walk(launch.body) if isinstance(stmt, Alloc))
    return {
        str(tile.name): [int(extent) for extent in tile.shape] for tile in found if "_raw" in str(tile.name)
    }


@pytest.mark.parametrize(("columns", "dtype", "group"), [(512, "int8", 128), (480, "float16", 16)])
def test_rows_and_their_scales_are_brought_as_they_are(columns, dtype, group):
    inputs, expected = case(columns, dtype, group)
    kernel = scores(columns, dtype, group)
    agree(kernel, *inputs, expected=expected, rtol=2e-2, atol=2e-2)
    found = tiles(kernel, inputs)
    assert found["X_raw"][-2:] == [TILE, columns]
    assert found["scales_raw"][-2:] == [TILE, columns // group]


@pytest.mark.parametrize(("columns", "first"), [(512, 3), (128, 0)], ids=["between vectors", "few"])
def test_others_are_read_by_those_who_compute(columns, first):
    """Rows that begin between vectors, and those of blocks of which a multiprocessor holds several."""
    inputs, expected = case(columns, first=first)
    kernel = scores(columns, first=first)
    agree(kernel, *inputs, expected=expected, rtol=2e-2, atol=2e-2)
    assert "X_raw" not in tiles(kernel, inputs)
