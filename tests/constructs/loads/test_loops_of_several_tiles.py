"""Loops that write several tiles, of which a producer of loads needs some and those who compute others."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec
import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.ir.text.printer import format_kernel
from tilec.targets import parse_target

ROWS, COLUMNS = 100, 64


@T.macro
def one_loop(factor, addend, F, G, first):
    for i in T.Parallel(16):
        factor[i] = F[first + i]
        addend[i] = G[first + i] * 2


@T.macro
def under_conditions(factor, addend, F, G, first):
    for i in T.Parallel(16):
        factor[i] = F[first + i]
        addend[i] = 0
        if G[first + i] != 0:
            addend[i] = G[first + i] * 2


@T.macro
def one_from_the_other(factor, addend, F, G, first):
    for i in T.Parallel(16):
        addend[i] = G[first + i]
        factor[i] = F[first + i] + addend[i]
        addend[i] = addend[i] * 2
    for i in T.Parallel(16):
        factor[i] = factor[i] - addend[i] / 2


@T.macro
def counted(factor, addend, F, G, first):
    for i in T.Parallel(16):
        factor[i] = F[first + i]
        addend[i] = T.atomic_add(G[first + i], 1.0, return_prev=True) * 2


def product(tables, uses_factor):
    """Y = A (X * F) + 2 G for 16 rows each; with ``uses_factor`` those who compute read F's tile, too."""

    @tilec.jit
    def scaled(A, X, F, G):
        A: T.Tensor[[ROWS, 16], T.float16]
        X: T.Tensor[[ROWS, COLUMNS], T.float16]
        F: T.Tensor[[ROWS], T.float32]
        G: T.Tensor[[ROWS], T.float32]
        Y = T.empty((ROWS, COLUMNS), T.float32)
        with T.Kernel(T.ceildiv(ROWS, 16), threads=128) as b:
            a, x = T.alloc_shared((16, 16), T.float16), T.alloc_shared((16, 32), T.float16)
            factor, addend = (T.alloc_shared((16,), T.float32) for _ in range(2))
            acc = T.alloc_fragment((16, 32), T.float32)
            T.copy(A[b * 16, 0], a)
            tables(factor, addend, F, G, b * 16)
            for n in T.Pipelined(COLUMNS // 32, num_stages=2):
                for i, j in T.Parallel(16, 32):
                    x[i, j] = X[b * 16 + i, n * 32 + j] * factor[i]
                T.gemm(a, x, acc, clear_accum=True)
                for i, j in T.Parallel(16, 32):
                    acc[i, j] += addend[i] + (factor[i] if uses_factor else 0)
                T.copy(acc, Y[b * 16, n * 32])
        return Y

    return scaled


def operands():
    draw = np.random.default_rng(4)
    a, x = (draw.integers(-2, 3, (ROWS, n)).astype(np.float16) for n in (16, COLUMNS))
    return a, x, *(draw.integers(-2, 3, ROWS).astype(np.float32) for _ in range(2))


@pytest.mark.parametrize("uses_factor", [False, True])
@pytest.mark.parametrize("tables", [one_loop, under_conditions, one_from_the_other, counted])
def test_each_role_has_the_tiles_that_it_reads(tables, uses_factor):
    a, x, f, g = operands()
    end = -ROWS % 16
    rows = np.pad(x * f[:, None], ((0, end), (0, 0))).reshape(-1, 16, COLUMNS)
    y = (np.pad(a, ((0, end), (0, 0))).reshape(-1, 16, 16) @ rows).reshape(-1, COLUMNS)[:ROWS]
    y = y + 2 * g[:, None] + (f[:, None] if uses_factor else 0)
    expected = [g + 1, y] if tables is counted else y
    kernel = product(tables, uses_factor)
    agree(kernel, a, x, f, g, expected=expected, targets=("sm_120a", "sm_90a"))


def test_what_a_loop_counts_is_counted_once():
    made = elaborated(product(counted, False), operands(), None, {}, {})
    assert format_kernel(lower(made, parse_target("sm_120a"))).count("atomic_add") == 1
