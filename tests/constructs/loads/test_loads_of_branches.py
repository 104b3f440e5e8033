"""Loads of a pipeline that stand in branches: ahead where their condition is told, right everywhere."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated, roads

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.targets import parse_target

M, N, K, ROWS, COLUMNS, DEPTH = 128, 96, 256, 64, 32, 32
PICKED = np.random.default_rng(3).integers(-1, 4, (M // ROWS, K // DEPTH)).astype(np.int32)


def blocks(chosen, picked=PICKED):
    """The product of the tiles of K that ``chosen`` tells by a block's numbers."""

    def result(a, b):
        found = np.zeros((M, N), np.float32)
        for block, numbers in enumerate(picked):
            rows = slice(block * ROWS, (block + 1) * ROWS)
            for trip in (trip for trip in range(len(numbers)) if chosen(numbers, trip)):
                depth = slice(trip * DEPTH, (trip + 1) * DEPTH)
                found[rows] += a[rows, depth].astype(np.float32) @ b[depth].astype(np.float32)
        return found

    return result


FORMS = ("inside", "nested", "counted", "wider", "outside")
EXPECTED = {
    "inside": blocks(lambda numbers, trip: numbers[trip] != 0),
    "nested": blocks(lambda numbers, trip: 0 < numbers[trip] < 3),
    "counted": blocks(lambda numbers, trip: numbers[: trip + 1].sum() % 2 == 0),
    "wider": blocks(lambda numbers, trip: numbers[trip] != 0),
    "outside": blocks(lambda numbers, trip: numbers[trip] > 0),
}
AHEAD = {"inside": "ab", "nested": "ab", "counted": "", "wider": "b", "outside": "ab"}


def picked(form, stages=3):
    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        mask: T.Tensor((M // ROWS, K // DEPTH), "int32"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(N // COLUMNS, M // ROWS, threads=128) as (bx, by):
            a, b = T.alloc_shared((ROWS, DEPTH), "float16"), T.alloc_shared((DEPTH, COLUMNS), "float16")
            acc = T.alloc_fragment((ROWS, COLUMNS), "float32")
            n = T.alloc_var("int32", 0)
            T.clear(acc)
            for k in T.Pipelined(K // DEPTH, num_stages=stages):
                if form == "inside":
                    m = mask[by, k]
                    if m != 0:
                        T.copy(A[by * ROWS, k * DEPTH], a)
                        T.copy(B[k * DEPTH, bx * COLUMNS], b)
                        T.gemm(a, b, acc)
                if form == "nested":
                    T.copy(A[by * ROWS, k * DEPTH], a)
                    if mask[by, k] > 0:
                        m = mask[by, k]
                        if m < 3:
                            T.copy(B[k * DEPTH, bx * COLUMNS], b)
                            T.gemm(a, b, acc)
                if form == "counted":
                    n = n + mask[by, k]
                    if n % 2 == 0:
                        T.copy(A[by * ROWS, k * DEPTH], a)
                        T.copy(B[k * DEPTH, bx * COLUMNS], b)
                        T.gemm(a, b, acc)
                if form == "wider":
                    if mask[by, k] != 0:
                        T.copy(A[by * ROWS, k * DEPTH], a)
                    T.copy(B[k * DEPTH, bx * COLUMNS], b)
                    if mask[by, k] < 0 or mask[by, k] > 0:
                        T.gemm(a, b, acc)
                if form == "outside":
                    T.copy(A[by * ROWS, k * DEPTH], a)
                    T.copy(B[k * DEPTH, bx * COLUMNS], b)
                    if mask[by, k] > 0:
                        T.gemm(a, b, acc)
            T.copy(acc, C[by * ROWS, bx * COLUMNS])

    return kernel


def inputs():
    rng = np.random.default_rng(5)
    a, b = ((rng.standard_normal(shape) / 4).astype(np.float16) for shape in ((M, K), (K, N)))
    return a, b, PICKED


@pytest.mark.parametrize("form", FORMS)
def test_branches_around_loads_give_what_they_say(form):
    a, b, numbers = inputs()
    agree(
        picked(form),
        a,
        b,
        numbers,
        expected=EXPECTED[form](a, b),
        targets=("cpu", "sm_80", "sm_90a", "gfx942"),
    )


@pytest.mark.parametrize("form", FORMS)
def test_loads_of_branches_run_ahead_where_their_condition_is_told(form):
    made = elaborated(picked(form), inputs(), None, {}, {})
    (launch,) = lower(made, parse_target("sm_80"), until="plan_pipeline").launches
    ahead = {road.statement[-1] for road in launch.roads if road.kind == "cp.async"}
    waiting = {road.statement[-1]: road.loss for road in launch.roads if road.kind == "waits"}
    assert ahead == set(AHEAD[form])
    assert waiting.keys() == set("ab") - ahead
    assert all(loss is not None and loss.remedy for loss in waiting.values())


def rows_that_are_there(rows):
    """The product of A's first rows, of which a branch fills the others with zeros."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        n: T.int32,
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(N // COLUMNS, T.ceildiv(M, rows), threads=128) as (bx, by):
            a, b = T.alloc_shared((rows, DEPTH), "float16"), T.alloc_shared((DEPTH, COLUMNS), "float16")
            acc = T.alloc_fragment((rows, COLUMNS), "float32")
            T.clear(acc)
            for k in T.Pipelined(K // DEPTH, num_stages=2):
                for i, j in T.Parallel(rows, DEPTH):
                    if by * rows + i < n:
                        a[i, j] = A[by * rows + i, k * DEPTH + j]
                    else:
                        a[i, j] = 0
                T.copy(B[k * DEPTH, bx * COLUMNS], b)
                T.gemm(a, b, acc)
            T.copy(acc, C[by * rows, bx * COLUMNS])

    return kernel


def test_loads_whose_other_rows_a_branch_fills_run_ahead():
    a, b, _ = inputs()
    expected = a.astype(np.float32) @ b.astype(np.float32)
    expected[100:] = 0
    agree(rows_that_are_there(ROWS), a, b, 100, expected=expected)
    kinds = {road.statement: road.kind for road in roads(rows_that_are_there(ROWS), a, b, 100)}
    assert kinds["A -> a"] == "cp.async"
