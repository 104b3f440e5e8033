"""Loops that touch different parts of a tile or a tensor, and those whose parts have elements in common."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated, numbers

import tilec.language as T
from tilec.backends.cuda.nodes import Sync, WarpSync
from tilec.backends.pipeline import lower
from tilec.ir.nodes import walk
from tilec.targets import parse_target

ROWS, COLUMNS = 6, 128


def turned(first):
    """Pairs of the first 64 columns, and what lies from column ``first`` on, which another loop writes."""

    @T.prim_func
    def kernel(A: T.Tensor((ROWS, COLUMNS), "float32"), B: T.Tensor((ROWS, COLUMNS), "float32")):
        with T.Kernel(ROWS, threads=64) as row:
            for j in T.Parallel(32):
                B[row, 2 * j] = A[row, 2 * j] - A[row, 2 * j + 1]
                B[row, 2 * j + 1] = A[row, 2 * j] + A[row, 2 * j + 1]
            for j in T.Parallel(COLUMNS - first):
                B[row, first + j] = A[row, first + j] * 3

    return kernel


def halves(apart):
    """Each half of a tile made of the other one's place in a tensor, ``apart`` columns between them."""

    @T.prim_func
    def kernel(A: T.Tensor((ROWS, COLUMNS), "float32"), B: T.Tensor((ROWS, COLUMNS), "float32")):
        with T.Kernel(ROWS, threads=64) as row:
            s = T.alloc_shared((COLUMNS,), "float32")
            for j in T.Parallel(64):
                s[j] = A[row, j]
            for j in T.Parallel(COLUMNS - apart):
                s[j + apart] = A[row, 127 - j] * 2
            for k in T.serial(2):
                for j in T.Parallel(32):
                    B[row, k * 32 + 31 - j] = s[k * 32 + j]
            for j in T.Parallel(64):
                B[row, 64 + j] = s[64 + j]

    return kernel


def barriers(kernel) -> int:
    made = lower(elaborated(kernel, (numbers(ROWS, COLUMNS),), None, {}, {}), parse_target("sm_90a"))
    return sum(isinstance(stmt, (Sync, WarpSync)) for stmt in walk(made.launches[0].body))


@pytest.mark.parametrize(("first", "count"), [(64, 0), (62, 1)])
def test_threads_wait_where_loops_write_the_same_columns(first, count):
    A = numbers(ROWS, COLUMNS)
    pairs = A[:, :64].reshape(ROWS, 32, 2)
    B = np.zeros_like(A)
    B[:, :64] = np.stack([pairs[..., 0] - pairs[..., 1], pairs[..., 0] + pairs[..., 1]], -1).reshape(ROWS, 64)
    B[:, first:] = 3 * A[:, first:]
    agree(turned(first), A, expected=B)
    assert barriers(turned(first)) == count


@pytest.mark.parametrize(("apart", "count"), [(64, 1), (63, 3)])
def test_halves_of_a_tile_are_apart(apart, count):
    A = numbers(ROWS, COLUMNS)
    s = np.zeros_like(A)
    s[:, :64] = A[:, :64]
    s[:, apart:] = 2 * A[:, : apart - 1 : -1]
    B = np.concatenate([s[:, 31::-1], s[:, 63:31:-1], s[:, 64:]], axis=1)
    agree(halves(apart), A, expected=B)
    assert barriers(halves(apart)) == count
