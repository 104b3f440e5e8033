"""Trips that make a new tile of the old one and copy it back; indices with bits flipped; rows read once."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated, roads

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Alloc, Copy, walk
from tilec.lowering.passes.swap_tiles import SwapTiles
from tilec.targets import parse_target

ROWS, SIZE = 4, 64


def smoothed(steps, by_loop=False, reads_new=False):
    """Each element with its neighbour, again and again; ``steps`` may be a number that a tensor tells."""

    @T.prim_func
    def kernel(
        X: T.Tensor((8, SIZE), "float32"), count: T.Tensor((1,), "int32"), Y: T.Tensor((8, SIZE), "float32")
    ):
        with T.Kernel(2, threads=64) as bx:
            old = T.alloc_shared((ROWS, SIZE), "float32")
            new = T.alloc_shared((ROWS, SIZE), "float32")
            T.copy(X[bx * ROWS, 0], old)
            for t in T.serial(count[0] if steps is None else steps):
                for i, j in T.Parallel(ROWS, SIZE):
                    new[i, j] = old[i, j] + old[i, (j + 1) % SIZE] * 0.5 + t
                if by_loop:
                    for i, j in T.Parallel(ROWS, SIZE):
                        old[i, j] = new[i, j]
                else:
                    T.copy(new, old)
            T.copy(new if reads_new else old, Y[bx * ROWS, 0])

    return kernel


def hadamard(size=128):
    @T.prim_func
    def kernel(X: T.Tensor((8, size), "float32"), Y: T.Tensor((8, size), "float32")):
        with T.Kernel(2, threads=64) as bx:
            a = T.alloc_shared((ROWS, size), "float32")
            b = T.alloc_shared((ROWS, size), "float32")
            T.copy(X[bx * ROWS, 0], a)
            for s in T.unroll(size.bit_length() - 1):
                for i, j in T.Parallel(ROWS, size):
                    other = a[i, j ^ (1 << s)]
                    b[i, j] = T.if_then_else((j >> s) & 1 == 0, a[i, j] + other, other - a[i, j])
                T.copy(b, a)
            T.copy(a, Y[bx * ROWS, 0])

    return kernel


def rows(seed=3, size=SIZE):
    return np.random.default_rng(seed).standard_normal((8, size)).astype(np.float32)


@pytest.mark.parametrize("by_loop", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 5, None])
@pytest.mark.parametrize("count", [0, 5, 6])
def test_two_tiles_take_turns(steps, count, by_loop):
    x = expected = rows()
    for t in range(count if steps is None else steps):
        expected = expected + np.roll(expected, -1, 1) * np.float32(0.5) + t
    agree(smoothed(steps, by_loop), x, np.array([count], np.int32), dims={}, expected=expected)


def odd_trips(form):
    """Trips that are left early, or whose number they change, or that have a tile of their own."""

    @T.prim_func
    def kernel(
        X: T.Tensor((SIZE,), "float32"), last: T.Tensor((2,), "int32"), Y: T.Tensor((SIZE,), "float32")
    ):
        with T.Kernel(1, threads=64):
            old = T.alloc_shared((SIZE,), "float32")
            new = T.alloc_shared((SIZE,), "float32")
            ends = T.alloc_shared((2,), "int32")
            T.copy(X, old)
            T.copy(last, ends)
            for t in T.serial(ends[0] if form == "changes" else 0, ends[1] if form == "changes" else 7):
                if form == "own":
                    new = T.alloc_shared((SIZE,), "float32")
                if form == "continue" and t == last[0]:
                    continue
                for i in T.Parallel(SIZE):
                    new[i] = old[(i + 1) % SIZE] * 2.0 + t
                if form == "break" and t == last[0]:
                    break
                if form == "changes":
                    T.fill(ends, 1)
                T.copy(new, old)
            T.copy(old, Y)

    return kernel


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("form", ["break", "continue", "changes", "own"])
def test_tiles_take_turns_in_whole_trips_alone(form, first):
    x = expected = rows()[0]
    for t in range(first if form == "changes" else 0, first if form == "break" else 7):
        if form != "continue" or t != first:
            expected = np.roll(expected, -1) * np.float32(2) + t
    agree(odd_trips(form), x, np.array([first, 7], np.int32), dims={}, expected=expected)


def copies(kernel, *inputs):
    """How many copies between its tiles a pass leaves of a kernel."""
    made = SwapTiles(("shared.dyn",)).apply(elaborated(kernel, inputs, {}, {}, {}), parse_target("sm_80"))
    (launch,) = made.body
    found = [stmt for stmt in walk(launch.body) if isinstance(stmt, Copy)]
    return sum(stmt.src.buffer.scope() == stmt.dst.buffer.scope() for stmt in found)


def test_pairs_of_trips_have_no_copy():
    inputs = rows(), np.array([0], np.int32)
    assert copies(smoothed(6), *inputs) == 0
    assert copies(smoothed(5), *inputs) == 1, "that of the last trip"
    assert copies(smoothed(6, reads_new=True), *inputs) == 1, "what is read behind the loop"


def test_bits_flipped_in_an_index_stay_in_its_row_and_its_vector():
    x = rows(size=128)
    (result,) = agree(hadamard(), x, dims={}, rtol=1e-4, atol=1e-4)
    matrix = np.ones((1, 1), np.float32)
    while len(matrix) < 128:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    assert np.allclose(result, x @ matrix, rtol=1e-4, atol=1e-3)
    for target in ("sm_80", "sm_90a"):
        assert not [str(road) for road in roads(hadamard(), x, dims={}, target=target) if road.loss]


@pytest.mark.parametrize("mask", [None, 1, 3, 5])
def test_elements_that_turn_around_are_vectors(mask):
    @T.prim_func
    def kernel(X: T.Tensor((4, 1024), "float16"), Y: T.Tensor((4, 1024), "float16")):
        with T.Kernel(4, threads=64) as bx:
            for j in T.Parallel(1024):
                Y[bx, j] = X[bx, 1023 - j if mask is None else j ^ mask]

    x = np.arange(4096).astype(np.float16).reshape(4, 1024)
    order = np.arange(1024)
    agree(kernel, x, dims={}, expected=x[:, 1023 - order if mask is None else order ^ mask])
    assert not [str(road) for road in roads(kernel, x, dims={}) if road.loss]


def convolved():
    """A causal convolution of four taps along rows; weights lie by columns."""

    @T.prim_func
    def kernel(
        X: T.Tensor((64, 128), "float16"), W: T.Tensor((128, 4), "float32"), Y: T.Tensor((64, 128), "float32")
    ):
        with T.Kernel(1, threads=64):
            total = T.alloc_fragment((64, 128), "float32")
            T.clear(total)
            for w in T.unroll(4):
                for i, j in T.Parallel(64, 128):
                    if i - 3 + w >= 0:
                        total[i, j] += X[i - 3 + w, j].astype("float32") * W[j, w]
            T.copy(total, Y)

    return kernel


def test_rows_of_conditional_loops_are_read_once():
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((64, 128)).astype(np.float16), rng.standard_normal((128, 4)).astype(np.float32)
    padded = np.concatenate([np.zeros((3, 128), np.float32), x.astype(np.float32)])
    expected = sum(padded[tap : tap + 64] * w[:, tap] for tap in range(4))
    agree(convolved(), x, w, dims={}, expected=expected, rtol=1e-5, atol=1e-5)
    for name in ("sm_80", "sm_90a"):
        target = parse_target(name)
        made = lower(elaborated(convolved(), (x, w), {}, {}, {}), target)
        held = [stmt.buffer for stmt in walk(made.body) if isinstance(stmt, Alloc)]
        assert sum(buffer.name.startswith("W_row") for buffer in held) == 1
