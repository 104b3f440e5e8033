"""Sums of rows on sm_90a: behind the loop that adds them up where warpgroups share columns."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.ir.nodes import For, Reduce, walk
from tilec.targets import parse_target

ROWS, KEYS, SIZE, TILE = 64, 192, 64, 64
SM90A = parse_target("sm_90a")


def weighed(start=0.0, reads=False):
    """P V / total with P = |Q K^T| halved from tile to tile, total = the sum of P's rows, and ``start``."""

    @T.prim_func
    def kernel(
        Q: T.Tensor((ROWS, SIZE), "float16"),
        K: T.Tensor((KEYS, SIZE), "float16"),
        V: T.Tensor((KEYS, SIZE), "float16"),
        out: T.Tensor((ROWS, SIZE), "float32"),
        sums: T.Tensor((ROWS,), "float32"),
        weights: T.Tensor((ROWS, KEYS), "float16"),
    ):
        with T.Kernel(1, threads=256):
            q, k_s, v_s, p = (T.alloc_shared((TILE, SIZE), "float16") for _ in range(4))
            s, o = T.alloc_fragment((TILE, TILE), "float32"), T.alloc_fragment((TILE, SIZE), "float32")
            part, total, half = (T.alloc_fragment((TILE,), "float32") for _ in range(3))
            T.copy(Q, q)
            T.clear(o)
            T.fill(half, 0.5)
            T.fill(total, start)
            for k in T.Pipelined(KEYS // TILE, num_stages=2):
                T.copy(K[k * TILE, 0], k_s)
                T.copy(V[k * TILE, 0], v_s)
                T.gemm(q, k_s, s, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullCol)
                for i, j in T.Parallel(TILE, TILE):
                    s[i, j] = T.abs(s[i, j])
                T.reduce_sum(s, part, dim=1)
                T.copy(s, p)
                T.copy(p, weights[0, k * TILE])  # attention's own road stores nothing in its loop
                for i in T.Parallel(TILE):
                    total[i] = total[i] * half[i] + part[i]
                for i, d in T.Parallel(TILE, SIZE):
                    o[i, d] *= half[i]
                if reads:
                    for i in T.Parallel(TILE):
                        half[i] = T.if_then_else(total[i] > 1e30, 0.25, 0.5)
                T.gemm(p, v_s, o, policy=T.GemmWarpPolicy.FullCol)
            for i, d in T.Parallel(TILE, SIZE):
                o[i, d] /= total[i]
            T.copy(o, out)
            T.copy(total, sums)

    return kernel


def operands():
    rng = np.random.default_rng(4)
    return [(rng.standard_normal((rows, SIZE)) / 4).astype(np.float16) for rows in (ROWS, KEYS, KEYS)]


@pytest.mark.parametrize(
    ("given", "is_behind"),
    [({}, True), ({"start": 1.0}, False), ({"reads": True}, False)],
    ids=["a total", "another start", "a total that trips read"],
)  # fmt: skip
def test_sums_of_shared_rows_are_taken_behind_the_loop(given, is_behind):
    inputs = operands()
    made = lower(elaborated(weighed(**given), inputs, None, {}, {}), SM90A, until="sum_behind_loops")
    loops = [stmt for stmt in walk(made.launches[0].body) if isinstance(stmt, For)]
    inside = [stmt for loop in loops for stmt in loop.body if isinstance(stmt, Reduce)]
    assert any(isinstance(stmt, Reduce) for stmt in walk(made.launches[0].body))
    assert bool(inside) != is_behind
    q, k, v = (each.astype(np.float32) for each in inputs)
    weights = np.repeat(0.5 ** np.arange(KEYS // TILE)[::-1], TILE) * np.abs(q @ k.T)
    total = weights.sum(1) + given.get("start", 0.0) * 0.5 ** (KEYS // TILE)
    expected = (weights @ v / total[:, None], total, np.abs(q @ k.T).astype(np.float16))
    agree(weighed(**given), *inputs, expected=expected, targets=("sm_90a",), rtol=2e-2, atol=2e-2)
