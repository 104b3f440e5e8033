"""Arrays and columns that iterations of a T.Parallel go through by loops: neighbours are vectors, and lie in
the thread that wants them."""

from __future__ import annotations

import numpy as np
from agree import agree, roads

import tilec.language as T

ROWS, COLUMNS = 10, 256


@T.prim_func
def second_differences(X: T.Tensor((ROWS, COLUMNS), "float16"), Y: T.Tensor((2, ROWS, COLUMNS), "float16")):
    """Sums and second differences of three rows, zeros outside."""
    with T.Kernel(ROWS // 2, threads=64) as bx:
        for i, j in T.Parallel(2, COLUMNS):
            taps, out = T.alloc_local((3,), "float32"), T.alloc_local((2,), "float32")
            row = bx * 2 + i
            for t in T.serial(3):
                inside = (row + t >= 1) & (row + t <= ROWS)
                taps[t] = T.if_then_else(inside, X[row + t - 1, j].astype("float32"), 0.0)
            out[0] = taps[0] + taps[1] + taps[2]
            out[1] = taps[0] - 2.0 * taps[1] + taps[2]
            for k in T.unroll(2):
                Y[k, row, j] = out[k]


@T.prim_func
def channel_taps(
    X: T.Tensor((18, 64), "float16"), F: T.Tensor((3, 64), "float16"), Y: T.Tensor((16, 64), "float16")
):
    """Sums over three taps of each channel, by tiles of bytes half as wide as the sums."""
    with T.Kernel(1, threads=64):
        x, f = T.alloc_shared((18, 64), "float16"), T.alloc_shared((3, 64), "float16")
        sums = T.alloc_fragment((16, 64), "float32")
        T.copy(X, x)
        T.copy(F, f)
        T.clear(sums)
        for t in T.serial(3):
            for i, c in T.Parallel(16, 64):
                sums[i, c] += x[i + t, c].astype("float32") * f[t, c].astype("float32")
        T.copy(sums, Y)


@T.prim_func
def mixed_rows(
    X: T.Tensor((4, 4 * COLUMNS), "float16"),
    M: T.Tensor((4, 4), "float32"),
    Y: T.Tensor((4, 4 * COLUMNS), "float16"),
):
    """Sums of rows with the weights of a small matrix, which an iteration reads row by row."""
    with T.Kernel(1, threads=128):
        x, y = T.alloc_fragment((4, 4 * COLUMNS), "float16"), T.alloc_fragment((4, 4 * COLUMNS), "float32")
        m = T.alloc_shared((4, 4), "float32")
        T.copy(M, m)
        T.copy(X, x)
        for a, j in T.Parallel(4, 4 * COLUMNS):
            y[a, j] = x[a, j]
            for c in T.serial(4):
                y[a, j] += m[a, c] * x[c, j]
        T.copy(y, Y)


def moved(kernel, *inputs):
    """How the statements of a kernel move what tensors and tiles hold."""
    return {road.statement: road.instruction for road in roads(kernel, *inputs) if road.kind == "vectors"}


def test_rows_that_an_array_holds_are_vectors():
    x = np.random.default_rng(3).integers(-8, 9, (ROWS, COLUMNS)).astype(np.float16)
    around = np.pad(x.astype(np.float32), ((1, 1), (0, 0)))
    above, below = around[:-2], around[2:]
    wanted = np.stack([above + x + below, above - 2 * x + below]).astype(np.float16)
    agree(second_differences, x, expected=wanted)
    assert moved(second_differences, x) == {"X -> Y": "vectors of 16 bytes"}


def test_shared_rows_are_vectors_of_neighbours_that_a_store_wants():
    rng = np.random.default_rng(5)
    x, f = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((18, 64), (3, 64)))
    wanted = sum(x[t : t + 16].astype(np.float32) * f[t] for t in range(3)).astype(np.float16)
    agree(channel_taps, x, f, expected=wanted)
    assert moved(channel_taps, x, f)["x, f -> sums"] == "vectors of 16 bytes"


def test_columns_that_a_loop_goes_through_stay_in_registers():
    rng = np.random.default_rng(6)
    x, m = (
        rng.integers(-4, 5, (4, 4 * COLUMNS)).astype(np.float16),
        rng.integers(-2, 3, (4, 4)).astype(np.float32),
    )
    agree(mixed_rows, x, m, expected=(x + m @ x.astype(np.float32)).astype(np.float16))
    assert not any("shared" in road.statement for road in roads(mixed_rows, x, m))
