"""Loops inside of a T.Parallel's iteration over what neighbouring iterations have beside each other: pooling,
filters along a sequence, sums of parts, products element by element."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, halves, numbers, roads

import tilec.language as T


def vectors_alone(kernel, *inputs):
    found = roads(kernel, *inputs)
    assert not [road for road in found if road.kind == "elements"], [*map(str, found)]


def filtered(rows, width):
    """Y[t, c] = sum over w of X[t - 3 + w, c] W[w, c], and its sigmoid's product with it."""

    @T.prim_func
    def kernel(
        X: T.Tensor((rows, 256), "float16"),
        W: T.Tensor((width, 256), "float32"),
        bias: T.Tensor((256,), "float32"),
        Y: T.Tensor((rows, 256), "float16"),
    ):
        with T.Kernel(2, T.ceildiv(rows, 32), threads=128) as (bc, bt):
            for t, c in T.Parallel(32, 128):
                total = T.alloc_var("float32")
                total = bias[bc * 128 + c]
                for w in T.serial(width):
                    at = bt * 32 + t - (width - 1) + w
                    if at >= 0:
                        total += X[at, bc * 128 + c] * W[w, bc * 128 + c]
                Y[bt * 32 + t, bc * 128 + c] = total / (1 + T.exp(-total))

    return kernel


@pytest.mark.parametrize(("rows", "width"), [(70, 4), (40, 20)])
def test_a_filter_along_a_sequence_reads_vectors(rows, width):
    inputs = halves(rows, 256), numbers(width, 256, dtype="float32"), numbers(256, dtype="float32")
    agree(filtered(rows, width), *inputs)
    vectors_alone(filtered(rows, width), *inputs)


def test_names_and_tests_around_such_a_loop_count_for_all_its_trips():
    @T.prim_func
    def main(
        X: T.Tensor((9, 512), "float16"),
        ends: T.Tensor((3,), "int32"),
        live: T.Tensor((512,), "int32"),
        base: T.Tensor((512,), "float32"),
        Y: T.Tensor((512,), "float32"),
        Old: T.Tensor((512,), "float32"),
    ):
        with T.Kernel(1, threads=128):
            for j in T.Parallel(512):
                first = live[j]
                before = base[j]
                other = j + 3
                if first > 0:
                    low = T.alloc_var("float32", init=2.0)
                    high = T.alloc_var("float32", init=0.0)
                    peak = T.alloc_var("float32", init=0.0)
                    for a in T.serial(2):
                        for r in T.serial(ends[a], ends[a + 1]):
                            step = T.alloc_var("float32", init=1.0)
                            step += X[r, j] * first
                            peak = T.max(peak, step)
                            low = T.min(low, peak + before)
                            high += step
                        high = high * 2
                    Old[j] = before + other
                    Y[j] = low + high
                else:
                    Old[j] = other
                    Y[j] = before

    rows, ends = halves(9, 512), np.array([1, 4, 4], np.int32)
    live = np.random.default_rng(2).integers(0, 3, 512).astype(np.int32)
    for last in (4, 9):
        ends[2] = last
        agree(main, rows, ends, live, numbers(512, dtype="float32"))


def test_products_element_by_element_keep_their_sums():
    @T.prim_func
    def main(
        A: T.Tensor((40, 48), "float32"), B: T.Tensor((48, 64), "float32"), C: T.Tensor((40, 64), "float32")
    ):
        with T.Kernel(T.ceildiv(40, 16), threads=128) as by:
            c = T.alloc_fragment((16, 64), "float32")
            T.clear(c)
            for i, j in T.Parallel(16, 64):
                for k in T.serial(48):
                    c[i, j] += A[by * 16 + i, k] * B[k, j]
            T.copy(c, C[by * 16, 0])

    inputs = numbers(40, 48, dtype="float32"), numbers(48, 64, dtype="float32")
    agree(main, *inputs)
    assert any(road.kind == "vectors" and "B" in road.statement for road in roads(main, *inputs))


def test_loops_along_rows_and_loops_that_store_stay():
    @T.prim_func
    def main(
        A: T.Tensor((512, 64), "float16"), X: T.Tensor((64, 512), "float16"), Y: T.Tensor((512,), "float32"),
        Z: T.Tensor((64, 512), "float16"),
    ):  # fmt: skip
        with T.Kernel(1, threads=128):
            for j in T.Parallel(512):
                total = T.alloc_var("float32", init=0.0)
                for k in T.serial(64):
                    total += A[j, k] * X[k, j]
                Y[j] = total
            for j in T.Parallel(512):
                state = T.alloc_var("float32", init=0.0)
                for t in T.serial(64):
                    state = state * 0.5 + X[t, j]
                    Z[t, j] = state

    agree(main, halves(512, 64), halves(64, 512))


@pytest.mark.parametrize("threads", [64, 96])
def test_sums_in_memory_are_kept_beside_loops_over_rows(threads):
    @T.prim_func
    def main(
        A: T.Tensor((32, 40), "float32"), B: T.Tensor((40, 48), "float32"), C: T.Tensor((32, 48), "float32"),
        total: T.Tensor((192,), "float32"), X: T.Tensor((9, 192), "float16"),
    ):  # fmt: skip
        with T.Kernel(1, threads=threads):
            a, b = T.alloc_shared((32, 20), "float32"), T.alloc_shared((20, 48), "float32")
            c = T.alloc_shared((32, 48), "float32")
            T.clear(c)
            for ko in T.serial(2):
                T.copy(A[0, ko * 20], a)
                T.copy(B[ko * 20, 0], b)
                for i, j in T.Parallel(32, 48):
                    for k in T.serial(20):
                        c[i, j] += a[i, k] * b[k, j]
            T.copy(c, C)
            for j in T.Parallel(192):
                for r in T.serial(9):
                    total[j] += X[r, j]

    inputs = numbers(32, 40, dtype="float32"), numbers(40, 48, dtype="float32")
    agree(main, *inputs, numbers(192, dtype="float32"), halves(9, 192))
    found = roads(main, *inputs, numbers(192, dtype="float32"), halves(9, 192))
    assert threads == 96 or not [road for road in found if road.kind == "elements" and "b" in road.statement]
