"""Reductions that trips add up: each thread keeps its own part, and threads meet once, behind the loop."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.nodes import REPEATING, BlockReduce, JoinReduce
from tilec.backends.pipeline import lower
from tilec.ir.nodes import children, walk
from tilec.targets import parse_target

TRIPS, ROWS, COLUMNS = 5, 32, 64
SM80 = parse_target("sm_80")


def statistics(of_columns=True, read=False, dtype="float32"):
    """Of all rows or columns a sum, the largest magnitude of some trips, and a sum that is halved in each."""
    results = COLUMNS if of_columns else ROWS

    @T.prim_func
    def kernel(
        X: T.Tensor((TRIPS * ROWS, COLUMNS), dtype),
        sums: T.Tensor((results,), dtype),
        largest: T.Tensor((results,), dtype),
        halved: T.Tensor((results,), dtype),
        few: T.int32,
    ):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((ROWS, COLUMNS), dtype)
            total, high, half, part = (T.alloc_fragment((results,), dtype) for _ in range(4))
            T.fill(total, 1)
            T.fill(high, 0)
            T.fill(half, 8)
            for m in T.serial(TRIPS):
                T.copy(X[m * ROWS, 0], x)
                T.reduce_sum(x, total, dim=1 - of_columns, clear=False)
                if m < few:
                    T.reduce_absmax(x, high, dim=1 - of_columns, clear=False)
                T.reduce_sum(x, part, dim=1 - of_columns)
                for i in T.Parallel(results):
                    half[i] = half[i] * T.cast(0.5, dtype) + part[i]
                if read:
                    for i in T.Parallel(results):
                        high[i] = T.max(high[i], half[i])
            T.copy(total, sums)
            T.copy(high, largest)
            T.copy(half, halved)

    return kernel


def expected(x, of_columns, few):
    axis = 1 - of_columns
    tiles = x.astype(np.float64).reshape(TRIPS, ROWS, COLUMNS)
    parts = tiles.sum(1 + axis)
    total = 1 + parts.sum(0)
    high = np.abs(tiles[:few]).max((0, 1 + axis))
    half = np.full(parts.shape[1], 8.0)
    for part in parts:
        half = half * 0.5 + part
    return tuple(each.astype(x.dtype) for each in (total, high, half))


@pytest.mark.parametrize("of_columns", [True, False])
def test_totals_of_many_trips_are_right(of_columns):
    x = np.random.default_rng(3).standard_normal((TRIPS * ROWS, COLUMNS)).astype(np.float32)
    agree(statistics(of_columns), x, 3, expected=expected(x, of_columns, 3), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "inside"), [({}, 0), ({"read": True}, 2), ({"dtype": "float16"}, 3)], ids=str
)
def test_threads_meet_behind_the_loop(given, inside):
    """Not for a total that trips read, or that is rounded in each."""
    x = np.zeros((TRIPS * ROWS, COLUMNS), given.get("dtype", "float32"))
    made = lower(elaborated(statistics(**given), (x, 3), None, {}, {}), SM80, until="defer_reductions")
    stmts = list(walk(made.launches[0].body))
    loops = [stmt for stmt in stmts if isinstance(stmt, REPEATING)]
    met = [
        stmt
        for loop in loops
        for block in children(loop)
        for stmt in walk(block)
        if type(stmt) is BlockReduce
    ]
    assert len(met) == inside
    assert sum(isinstance(stmt, JoinReduce) for stmt in stmts) == len(("sums", "largest", "halved")) - inside


def test_a_total_is_of_the_loop_that_begins_it():
    @T.prim_func
    def kernel(X: T.Tensor((4, TRIPS * ROWS, COLUMNS), "int32"), out: T.Tensor((4, COLUMNS), "int32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((ROWS, COLUMNS), "int32")
            total = T.alloc_fragment((COLUMNS,), "int32")
            for b in T.serial(4):
                T.clear(total)
                for m in T.serial(TRIPS):
                    T.copy(X[b, m * ROWS, 0], x)
                    T.reduce_sum(x, total, dim=0, clear=False)
                T.copy(total, out[b, 0])

    x = np.random.default_rng(5).integers(-9, 9, (4, TRIPS * ROWS, COLUMNS), np.int32)
    agree(kernel, x, expected=x.sum(1, dtype=np.int32))


def test_what_is_reduced_may_be_of_a_trip():
    @T.prim_func
    def kernel(
        X: T.Tensor((TRIPS * ROWS, COLUMNS), "float32"),
        sums: T.Tensor((COLUMNS,), "float32"),
        doubled: T.Tensor((COLUMNS,), "float32"),
    ):
        with T.Kernel(1, threads=128):
            total, twice = (T.alloc_fragment((COLUMNS,), "float32") for _ in range(2))
            T.clear(total)
            T.clear(twice)
            for m in T.serial(TRIPS):
                x = T.alloc_fragment((ROWS, COLUMNS), "float32")
                T.copy(X[m * ROWS, 0], x)
                T.reduce_sum(x, total, dim=0, clear=False)
                for i, j in T.Parallel(ROWS, COLUMNS):
                    twice[j] += x[i, j] * 2.0
            T.copy(total, sums)
            T.copy(twice, doubled)

    x = np.random.default_rng(9).standard_normal((TRIPS * ROWS, COLUMNS)).astype(np.float32)
    agree(kernel, x, expected=(x.sum(0), 2 * x.sum(0)), rtol=1e-4, atol=1e-4)


def test_a_total_that_ends_a_loop_is_of_its_trips():
    @T.prim_func
    def kernel(X: T.Tensor((TRIPS * ROWS, COLUMNS), "int32"), out: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((ROWS * COLUMNS,), "int32")
            total = T.alloc_fragment((1,), "int32")
            at = T.alloc_var("int32", init=0)
            T.clear(total)
            while total[0] < 3 * ROWS * COLUMNS:
                for i in T.Parallel(ROWS * COLUMNS):
                    x[i] = X[at * ROWS + i // COLUMNS, i % COLUMNS]
                T.reduce_sum(x, total, dim=0, clear=False)
                at = at + 1
            out[0] = total[0]

    x = np.ones((TRIPS * ROWS, COLUMNS), np.int32)
    agree(kernel, x, expected=np.array([3 * ROWS * COLUMNS], np.int32))


def extremes(trips):
    @T.prim_func
    def kernel(
        X: T.Tensor((4, trips * 64), "float32"),
        N: T.Tensor((4, trips * 64), "int32"),
        low: T.Tensor((4,), "float32"),
        high: T.Tensor((4,), "float32"),
        bits: T.Tensor((4,), "int32"),
    ):
        with T.Kernel(1, threads=32):
            x, n = T.alloc_fragment((4, 64), "float32"), T.alloc_fragment((4, 64), "int32")
            least, most = T.alloc_fragment((4,), "float32"), T.alloc_fragment((4,), "float32")
            common = T.alloc_fragment((4,), "int32")
            T.fill(least, T.infinity("float32"))
            T.fill(most, -T.infinity("float32"))
            T.fill(common, -1)
            for k in T.serial(trips):
                T.copy(X[0, k * 64], x)
                T.copy(N[0, k * 64], n)
                T.reduce_min(x, least, dim=1, clear=False)
                for i, j in T.Parallel(4, 64):
                    x[i, j] = -x[i, j]
                T.reduce_max(x, most, dim=1, clear=False)
                T.reduce_bitand(n, common, dim=1, clear=False)
            T.copy(least, low)
            T.copy(most, high)
            T.copy(common, bits)

    return kernel


def test_parts_begin_with_what_changes_no_result():
    """Zero would be the least of positive numbers, the largest of negative ones, and have no bit."""
    x = np.random.default_rng(0).uniform(1, 2, (4, 128)).astype(np.float32)
    n = np.random.default_rng(1).integers(0, 99, (4, 128)).astype(np.int32) | 5
    wanted = [x.min(1), (-x).max(1), np.bitwise_and.reduce(n, 1)]
    agree(extremes(2), x, n, expected=wanted, targets=("sm_80",))
