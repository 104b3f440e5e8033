"""Loops over numbers of elements that are taken apart into rows and columns again: right everywhere, in
vectors on GPUs where rows are whole vectors."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, roads

import tilec.language as T
from tilec.ir.guards import Guard

TARGETS = ("cpu", "sm_80", "gfx942")
VECTORS = ["vectors of 16 bytes"]


def doubled(shift=0):
    """Twice a matrix, 256 elements a block, wherever its rows end; read so many elements further on."""
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def kernel(X: T.Tensor((m, n), "float16"), Y: T.Tensor((m, n), "float16")):
        with T.Kernel(T.ceildiv(m * n, 256), threads=32) as bx:
            for i in T.Parallel(256):
                p = bx * 256 + i
                if p < m * n:
                    Y[p // n, p % n] = X[(p + shift) // n, (p + shift) % n] * 2

    return kernel


def cubes(width):
    """Three coordinates of a number, through a shared tile."""

    @T.prim_func
    def kernel(X: T.Tensor((4, 6, width), "float16"), Y: T.Tensor((4, 6, width), "float16")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((4, 6, width), "float16")
            for p in T.Parallel(24 * width):
                i, j, k = p // (6 * width), p // width % 6, p % width
                s[i, j, k] = X[i, j, k]
            for p in T.Parallel(24 * width):
                i, j, k = p // (6 * width), p // width % 6, p % width
                Y[i, j, k] = s[i, j, k] + 1

    return kernel


def numbers(*shape):
    return np.arange(np.prod(shape)).reshape(shape).astype(np.float16)


def moves(kernel, *inputs, dims=None):
    """What the roads of a kernel's launch say."""
    return [road.instruction for road in roads(kernel, *inputs, dims=dims)]


@pytest.mark.parametrize(
    ("columns", "shift", "found"),
    [
        (24, 0, VECTORS),
        (24, 8, VECTORS),
        (24, 3, ["X is read element by element", "vectors of 16 bytes"]),
        (20, 0, ["vectors of 8 bytes"]),
    ],
)
def test_rows_and_columns(columns, shift, found):
    X = numbers(13, columns)
    Y = np.zeros_like(X)
    Y.reshape(-1)[: X.size - shift] = X.reshape(-1)[shift:] * 2
    dims = {"m": Guard(), "n": Guard(div=8 if columns % 8 == 0 else 4)}
    agree(doubled(shift), X, dims=dims, expected=Y, targets=TARGETS)
    assert sorted(moves(doubled(shift), X, dims=dims)) == found


@pytest.mark.parametrize("width", [16, 32])
def test_coordinates_of_three_axes(width):
    X = numbers(4, 6, width)
    agree(cubes(width), X, expected=X + 1, targets=TARGETS)
    assert set(moves(cubes(width), X)) == set(VECTORS)


def test_rows_that_end_within_a_vector():
    X = numbers(4, 6, 12)
    agree(cubes(12), X, expected=X + 1, targets=TARGETS)
    assert not any("of 16 bytes" in each for each in moves(cubes(12), X))
