"""Vectors of shared tiles in nests of loops that a thread runs by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.nodes import ThreadVector
from tilec.backends.pipeline import lower
from tilec.ir.nodes import walk
from tilec.ir.traits import buffers
from tilec.targets import parse_target


def outer_products(first: int):
    """Sums of outer products, 4 x 8 elements a thread; the columns of ``a`` from ``first`` on alone."""

    @T.prim_func
    def main(
        A: T.Tensor((8, 32), "float32"), B: T.Tensor((8, 64), "float32"), C: T.Tensor((32, 64), "float32")
    ):
        with T.Kernel(1, threads=64):
            a, b = T.alloc_shared((8, 32), "float32"), T.alloc_shared((8, 64), "float32")
            acc = T.alloc_local((4, 8), "float32")
            tx = T.get_thread_binding()
            T.copy(A, a)
            T.copy(B, b)
            for i, j in T.grid(4, 8):
                acc[i, j] = 0
            for k in T.serial(8):
                for i, j in T.grid(4, 8):
                    if i >= first:
                        acc[i, j] += a[k, tx // 8 * 4 + i] * b[k, tx % 8 * 8 + j]
            for i, j in T.grid(4, 8):
                C[tx // 8 * 4 + i, tx % 8 * 8 + j] = acc[i, j]

    return main


def vectors(main: Any, *arguments: np.ndarray) -> set[str]:
    """The shared tiles of which a kernel's threads read vectors."""
    kernel = lower(elaborated(main, arguments, None, {}, {}), parse_target("sm_80"))
    moves = [stmt for stmt in walk(kernel.launches[0].body) if isinstance(stmt, ThreadVector)]
    named = {buffer for move in moves for stmt in walk(move.body) for buffer in buffers(stmt)}
    return {buffer.name for buffer in named if buffer.scope() == "shared.dyn"}


@pytest.mark.parametrize(("first", "found"), [(0, {"a", "b"}), (2, {"b"})])
def test_each_loop_of_a_nest_moves_what_it_counts(first, found):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 10, shape).astype(np.float32) for shape in ((8, 32), (8, 64)))
    wanted = a.T @ b * (np.arange(32) % 4 >= first)[:, None]
    agree(outer_products(first), a, b, expected=wanted, targets=("sm_80", "sm_90a"))
    assert vectors(outer_products(first), a, b) == found


def test_a_nest_that_writes_the_tile_reads_single_elements():
    @T.prim_func
    def main(A: T.Tensor((64, 4), "float32"), C: T.Tensor((64, 4), "float32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64, 4), "float32")
            tx = T.get_thread_binding()
            T.copy(A, s)
            for i in T.serial(4):
                for _ in T.serial(2):
                    s[tx, (i + 1) % 4] = s[tx, i] + 1
            T.copy(s, C)

    a = np.random.default_rng(0).integers(-9, 10, (64, 4)).astype(np.float32)
    wanted = a.copy()
    for i in range(4):
        wanted[:, (i + 1) % 4] = wanted[:, i] + 1
    agree(main, a, expected=wanted, targets=("sm_80", "sm_90a"))
    assert vectors(main, a) == set()
