"""Loops that read and write every second or fourth element, all of them together, and branches whose sides
store one element: right everywhere, in vectors on GPUs."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, roads

import tilec.language as T

ROWS, HEADS, DEPTH = 9, 2, 32
TARGETS = ("cpu", "sm_80", "gfx942")


def rotated(pairs, in_place, rows=4, threads=32):
    """Rotates elements 2 j and 2 j + 1 of each head, or j and j + DEPTH / 2."""

    @T.prim_func
    def kernel(
        x: T.Tensor((ROWS, HEADS, DEPTH), "float16"),
        cos: T.Tensor((ROWS, DEPTH // 2), "float32"),
        y: T.Tensor((ROWS, HEADS, DEPTH), "float16"),
    ):
        to = x if in_place else y
        with T.Kernel(T.ceildiv(ROWS, rows), threads=threads) as bx:
            for i, h, j in T.Parallel(rows, HEADS, DEPTH // 2):
                t = bx * rows + i
                if t < ROWS:
                    one, other = (2 * j, 2 * j + 1) if pairs else (j, j + DEPTH // 2)
                    a, b = x[t, h, one], x[t, h, other]
                    to[t, h, one] = a * cos[t, j] - b
                    to[t, h, other] = b * cos[t, j] + a

    return kernel


def products(dtype):
    """Complex numbers, the second of each row and all behind it by the first."""

    @T.prim_func
    def kernel(a: T.Tensor((ROWS, 128, 2), dtype), c: T.Tensor((ROWS, 128, 2), dtype)):
        with T.Kernel(ROWS, threads=32) as row:
            for j in T.Parallel(128):
                c[row, j, 0] = a[row, j, 0] * a[row, 0, 0] - a[row, j, 1] * a[row, 0, 1]
                c[row, j, 1] = a[row, j, 0] * a[row, 0, 1] + a[row, j, 1] * a[row, 0, 0]

    return kernel


@T.prim_func
def grey(x: T.Tensor((ROWS, 512), "uint8"), y: T.Tensor((ROWS, 128), "float32")):
    with T.Kernel(ROWS, threads=32) as row:
        for j in T.Parallel(128):
            y[row, j] = x[row, 4 * j] + 2.0 * x[row, 4 * j + 1] + 4.0 * x[row, 4 * j + 2]


@T.prim_func
def losses(x: T.Tensor((ROWS, 256), "float16"), place: T.Tensor((ROWS,), "int64"), count: T.int32):
    with T.Kernel(ROWS, threads=32) as row:
        for j in T.Parallel(256):
            if j < count * 8:
                if j == place[row]:
                    x[row, j] = x[row, j] - 1.0
                elif j % 2 == 0:
                    half = x[row, j] * 0.5
                    x[row, j] = half
                else:
                    x[row, j] = 3


@T.prim_func
def averaged(g: T.Tensor((ROWS, 256), "float16"), m: T.Tensor((ROWS, 256), "float32"), count: T.int32):
    with T.Kernel(ROWS, threads=32) as row:
        for j in T.Parallel(256):
            if j < count * 8:
                m[row, j] = m[row, j] * 0.5 + g[row, j]
                g[row, j] = m[row, j] * m[row, j]


def halves(*shape):
    return (np.random.default_rng(7).integers(-8, 9, shape) / 4).astype(np.float16)


def accesses(kernel, *inputs):
    """What the roads of a kernel's launch say."""
    return [road.instruction for road in roads(kernel, *inputs)]


def turned(x, cos, pairs):
    result = x.copy()
    one, other = (
        (slice(0, None, 2), slice(1, None, 2)) if pairs else (slice(DEPTH // 2), slice(DEPTH // 2, None))
    )
    a, b = x[..., one].astype(np.float32), x[..., other].astype(np.float32)
    result[..., one], result[..., other] = a * cos[:, None] - b, b * cos[:, None] + a
    return result


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("pairs", [False, True])
def test_rotated_elements(pairs, in_place):
    x, cos = halves(ROWS, HEADS, DEPTH), halves(ROWS, DEPTH // 2).astype(np.float32)
    kernel, inputs = rotated(pairs, in_place), (x, cos, x)[: 2 + in_place]
    agree(kernel, *inputs, expected=turned(x, cos, pairs), targets=TARGETS)
    assert all("vectors" in each for each in accesses(kernel, *inputs))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_complex_products(dtype):
    a = halves(ROWS, 128, 2).astype(dtype)
    wide = a.astype(np.float32)
    numbers = wide[..., 0] + 1j * wide[..., 1]
    result = numbers * numbers[:, :1]
    agree(
        products(dtype), a, expected=np.stack([result.real, result.imag], -1).astype(dtype), targets=TARGETS
    )
    assert accesses(products(dtype), a) == ["vectors of 16 bytes"]


def test_three_of_four_bytes():
    x = np.random.default_rng(1).integers(0, 256, (ROWS, 512)).astype(np.uint8)
    wide = x.astype(np.float32)
    agree(grey, x, expected=wide[:, 0::4] + 2 * wide[:, 1::4] + 4 * wide[:, 2::4], targets=TARGETS)
    assert accesses(grey, x) == ["vectors of 16 bytes"]


def test_branches_that_store_one_element():
    x, place = halves(ROWS, 256), np.arange(ROWS) * 31
    columns = np.arange(256)
    expected = np.where(columns % 2 == 0, x * np.float16(0.5), np.float16(3))
    expected = np.where(columns == place[:, None], x - np.float16(1), expected)
    expected = np.where(columns < 25 * 8, expected, x)
    agree(losses, x, place, 25, expected=expected, targets=TARGETS)
    assert accesses(losses, x, place, 25) == ["vectors of 16 bytes"]


def test_what_a_branch_has_stored_is_read_in_vectors():
    g, m = halves(ROWS, 256), halves(ROWS, 256).astype(np.float32)
    mean = np.where(np.arange(256) < 200, m * 0.5 + g, m)
    square = np.where(np.arange(256) < 200, (mean * mean).astype(np.float16), g)
    agree(averaged, g, m, 25, expected=(square, mean), targets=TARGETS)
    assert accesses(averaged, g, m, 25) == ["vectors of 16 bytes"]


@T.prim_func
def scattered(x: T.Tensor((32, 64), "uint8"), y: T.Tensor((64, 32), "uint8")):
    """Elements two apart of a tile whose rows are turned, which lie apart for that."""
    with T.Kernel(1, threads=32):
        s = T.alloc_shared((32, 64), "uint8")
        for i, j in T.Parallel(32, 32):
            s[i, 2 * j] = x[i, 2 * j] + 1
            s[i, 2 * j + 1] = x[i, 2 * j + 1] * 2
        for j, i in T.Parallel(64, 32):
            y[j, i] = s[i, j]


def test_runs_of_a_swizzled_tile():
    x = np.random.default_rng(5).integers(0, 100, (32, 64)).astype(np.uint8)
    expected = np.where(np.arange(64) % 2 == 0, x + 1, x * 2).astype(np.uint8).T
    agree(scattered, x, expected=expected, targets=TARGETS)
