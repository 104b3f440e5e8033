"""Loops of those who compute on sm_90a: trips without conditions, products behind those of the next trip."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated
from breadth import diagonal, parametrized

import tilec.language as T
from tilec.backends.cuda.attention.strategy import Attention
from tilec.backends.pipeline import lower
from tilec.ir.exprs import choice_of
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.nodes import For, Gemm, Parallel, walk
from tilec.ir.traits import expressions
from tilec.targets import parse_target

ROWS, KEYS, SIZE, TILE = 128, 300, 32, 64
SM90A = parse_target("sm_90a")


@pytest.fixture(autouse=True)
def told_by_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    """No launch has the roles of attention's strategy."""
    monkeypatch.setattr(Attention, "match", lambda *_: None)


def masked(seen, reverse=False):
    """O = (Q K^T where seen, else 0) V, by tiles of keys from the first or from the last one on."""

    @T.prim_func
    def kernel(
        Q: T.Tensor((ROWS, SIZE), "float16"),
        K: T.Tensor((KEYS, SIZE), "float16"),
        V: T.Tensor((KEYS, SIZE), "float16"),
        out: T.Tensor((ROWS, SIZE), "float32"),
    ):
        with T.Kernel(ROWS // TILE, threads=128) as bx:
            q, k_s, v_s = (T.alloc_shared((TILE, SIZE), "float16") for _ in range(3))
            s, o = T.alloc_fragment((TILE, TILE), "float32"), T.alloc_fragment((TILE, SIZE), "float32")
            p = T.alloc_fragment((TILE, TILE), "float16")
            T.copy(Q[bx * TILE, 0], q)
            T.clear(o)
            blocks = T.ceildiv(KEYS, TILE)
            for step in T.Pipelined(blocks, num_stages=2):
                k = blocks - 1 - step if reverse else step
                T.copy(K[k * TILE, 0], k_s)
                T.gemm(q, k_s, s, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(TILE, TILE):
                    s[i, j] = T.if_then_else(seen(bx * TILE + i, k * TILE + j), s[i, j], 0)
                T.copy(s, p)
                T.copy(V[k * TILE, 0], v_s)
                T.gemm(p, v_s, o)
            T.copy(o, out[bx * TILE, 0])

    return kernel


def operands():
    rng = np.random.default_rng(7)
    return [(rng.standard_normal((rows, SIZE)) / 4).astype(np.float16) for rows in (ROWS, KEYS, KEYS)]


def has_choices(loop):
    """Whether elements of a trip ask for a condition."""
    elements = [stmt for stmt in loop.body if isinstance(stmt, Parallel)]
    values = (expr for stmt in walk(elements) for expr in expressions(stmt))
    return any(choice_of(node) is not None for value in values for node in walk_expr(value))


def trips(kernel, inputs):
    """The loops with products of a kernel, and what is said of it."""
    made = lower(elaborated(kernel, inputs, None, {}, {}), SM90A, until="split_trips")
    loops = [
        stmt
        for stmt in walk(made.launches[0].body)
        if isinstance(stmt, For) and any(isinstance(inner, Gemm) for inner in stmt.body)
    ]
    return loops, "\n".join(map(str, made.launches[0].notes))


#: Where queries see keys, and how many loops there are.
SEEN = {
    "an end": (lambda i, j: j < KEYS - 5, 2),
    "a diagonal": (lambda i, j: i >= j, 2),
    "both": (lambda i, j: (j < KEYS) & (i + 90 >= j), 2),
    "a window": (lambda i, j: (i >= j) & (i - j < 70), 1),
    "everywhere": (lambda i, j: (i + j) % 3 == 0, 1),
}


@parametrized(
    ("where", "reverse"),
    [(where, reverse) for where in SEEN for reverse in (False, True)],
    fast=diagonal(list(SEEN), (True, False)),
)
def test_trips_that_a_condition_spares_run_without_it(where, reverse):
    seen, loops = SEEN[where]
    kernel, (q, k, v) = masked(seen, reverse), operands()
    found, _ = trips(kernel, (q, k, v))
    assert [has_choices(loop) for loop in found] == ([True] if loops == 1 else [reverse, not reverse])
    scores = q.astype(np.float32) @ k.astype(np.float32).T
    i, j = np.ogrid[:ROWS, :KEYS]
    expected = np.where(seen(i, j), scores, 0) @ v.astype(np.float32)
    agree(kernel, q, k, v, expected=(expected,), targets=("sm_90a",), rtol=2e-2, atol=2e-2)


def chosen(names):
    """O = f(Q K^T) V over the tiles of keys that ``keep`` takes, of those before ``names`` alone if given."""

    @T.prim_func
    def kernel(
        Q: T.Tensor((ROWS, SIZE), "float16"),
        K: T.Tensor((KEYS, SIZE), "float16"),
        V: T.Tensor((KEYS, SIZE), "float16"),
        keep: T.Tensor((ROWS // TILE, -(-KEYS // TILE)), "int32"),
        out: T.Tensor((ROWS, SIZE), "float32"),
    ):
        with T.Kernel(ROWS // TILE, threads=128) as bx:
            q, k_s, v_s = (T.alloc_shared((TILE, SIZE), "float16") for _ in range(3))
            s, o = T.alloc_fragment((TILE, TILE), "float32"), T.alloc_fragment((TILE, SIZE), "float32")
            p = T.alloc_fragment((TILE, TILE), "float16")
            T.copy(Q[bx * TILE, 0], q)
            T.clear(o)
            for k in T.Pipelined(T.ceildiv(KEYS, TILE), num_stages=2):
                if names:
                    number = keep[bx, k]
                    cond = number > 0
                else:
                    cond = keep[bx, k] > 0
                if cond:
                    T.copy(K[k * TILE, 0], k_s)
                    T.gemm(q, k_s, s, transpose_B=True, clear_accum=True)
                    for i, j in T.Parallel(TILE, TILE):
                        s[i, j] = T.max(s[i, j], 0)
                    T.copy(s, p)
                    T.copy(V[k * TILE, 0], v_s)
                    T.gemm(p, v_s, o)
            T.copy(o, out[bx * TILE, 0])

    return kernel


KEPT = [([0] * 5, [1] * 5), ([1, 0, 0, 0, 0], [0, 0, 0, 0, 1]), ([0, 1, 0, 1, 1], [1, 0, 1, 1, 0])]


@parametrized(
    ("keep", "names"),
    [(keep, names) for keep in KEPT for names in (False, True)],
    fast=diagonal(KEPT, (False, True)),
    ids=str,
)
def test_trips_that_take_a_branch_follow_each_other(keep, names):
    kernel, (q, k, v) = chosen(names), operands()
    taken = np.array(keep, np.int32)
    _, notes = trips(kernel, (q, k, v, taken))
    assert "issues its first product before the last ones of the trip before" in notes
    scores = np.maximum(q.astype(np.float32) @ k.astype(np.float32).T, 0)
    seen = np.kron(taken, np.ones((TILE, TILE)))[:, :KEYS] > 0
    expected = np.where(seen, scores, 0) @ v.astype(np.float32)
    agree(kernel, q, k, v, taken, expected=(expected,), targets=("sm_90a",), rtol=2e-2, atol=2e-2)


def shared_rows(stages):
    """O = relu(Q0 K^T + Q1 R^T) K: one ring holds what both products of a trip read."""

    @T.prim_func
    def kernel(
        Q: T.Tensor((ROWS, 2 * SIZE), "float16"),
        K: T.Tensor((KEYS, SIZE), "float16"),
        R: T.Tensor((KEYS, SIZE), "float16"),
        out: T.Tensor((ROWS, SIZE), "float32"),
    ):
        with T.Kernel(ROWS // TILE, threads=128) as bx:
            q, r, k_s, r_s = (T.alloc_shared((TILE, SIZE), "float16") for _ in range(4))
            s, o = T.alloc_fragment((TILE, TILE), "float32"), T.alloc_fragment((TILE, SIZE), "float32")
            p = T.alloc_fragment((TILE, TILE), "float16")
            T.copy(Q[bx * TILE, 0], q)
            T.copy(Q[bx * TILE, SIZE], r)
            T.clear(o)
            for k in T.Pipelined(T.ceildiv(KEYS, TILE), num_stages=stages):
                T.copy(K[k * TILE, 0], k_s)
                T.copy(R[k * TILE, 0], r_s)
                T.gemm(q, k_s, s, transpose_B=True, clear_accum=True)
                T.gemm(r, r_s, s, transpose_B=True)
                for i, j in T.Parallel(TILE, TILE):
                    s[i, j] = T.max(s[i, j], 0)
                T.copy(s, p)
                T.gemm(p, k_s, o)
            T.copy(o, out[bx * TILE, 0])

    return kernel


@pytest.mark.parametrize("stages", [2, 3])
def test_trips_overlap_where_a_ring_that_both_read_has_a_stage_for_loads(stages):
    rng = np.random.default_rng(5)
    q, k, r = ((rng.standard_normal(shape) / 4).astype(np.float16) for shape in
               ((ROWS, 2 * SIZE), (KEYS, SIZE), (KEYS, SIZE)))  # fmt: skip
    kernel = shared_rows(stages)
    (loop,), notes = trips(kernel, (q, k, r))
    assert ("issues its first product before the last ones" in notes) == (stages > 2)
    sums = [stmt.c.buffer.name for stmt in loop.body if isinstance(stmt, Gemm)]
    assert sums == ["s", "s", "o"]
    wide = [x.astype(np.float32) for x in (q, k, r)]
    scores = np.maximum(wide[0] @ np.concatenate(wide[1:], 1).T, 0)
    agree(kernel, q, k, r, expected=(scores @ wide[1],), targets=("sm_90a",), rtol=2e-2, atol=2e-2)
