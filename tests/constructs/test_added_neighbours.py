"""Additions of a thread to neighbours in global memory: one instruction where a GPU has it for as many."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated, numbers

import tilec.language as T
from tilec.backends.cuda.codegen.images import source
from tilec.backends.cuda.emit.entry import lower_kernel
from tilec.backends.pipeline import lower
from tilec.targets import parse_target


@T.macro
def in_pairs(table, row, at, g):
    T.atomic_addx2(table[row, at], g[0])
    T.atomic_addx2(table[row, at + 2], g[2])


@T.macro
def in_fours(table, row, at, g):
    T.atomic_addx4(table[row, at], g[0])


@T.macro
def in_a_loop(table, row, at, g):
    for v in T.vectorized(4):
        T.atomic_add(table[row, at + v], g[v])


def gradient(add, shift=0):
    V, n = T.dynamic("V, n")

    @T.prim_func
    def main(
        G: T.Tensor((n, 128), "float32"), ids: T.Tensor((n,), "int32"), dW: T.Tensor((V, 128), "float32")
    ):
        with T.Kernel(n, threads=32) as p:
            tx = T.get_thread_binding()
            g = T.alloc_local((4,), "float32")
            for v in T.vectorized(4):
                g[v] = G[p, tx * 4 + v] * 2.0
            if ids[p] >= 0:
                add(dW, ids[p], tx * 4 + shift, g)

    return main


@pytest.mark.parametrize(("shift", "width"), [(0, 4), (2, 2), (1, 1)])
@pytest.mark.parametrize("add", [in_pairs, in_fours, in_a_loop])
def test_a_thread_adds_to_neighbours_at_once(add, shift, width):
    g, ids, table = numbers(6, 128), np.array([1, 0, -1, 1, 2, 1], np.int32), numbers(3, 128, seed=1)
    expected = np.pad(table, ((0, 0), (0, 4)))
    for row, values in zip(ids, g, strict=True):
        if row >= 0:
            expected[row, shift : shift + 128] += 2 * values
    kernel = gradient(add, shift)
    agree(kernel, g, ids, table, expected=expected[:, :128])
    wide = [f"tilec_add_float32x{count}(" for count in (2, 4)]
    chip = parse_target("sm_90a")
    text = source(lower_kernel(lower(elaborated(kernel, (), None, {}, {}), chip), chip), chip, "k")
    assert [name in text for name in wide] == [width == 2, width == 4]
