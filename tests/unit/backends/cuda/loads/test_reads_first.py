"""Loops from shared tiles to shared tiles: what a thread reads before it stores any of it."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.targets import parse_target

SM80 = parse_target("sm_80")


def kernel(dtype, rows, made):
    """What is ``made`` of the elements of a tile, both axes turned round."""

    @T.prim_func
    def main(A: T.Tensor((rows, 128), dtype), C: T.Tensor((rows, 128), "float32")):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((rows, 128), dtype), T.alloc_shared((rows, 128), "float32")
            T.copy(A, a)
            for i, j in T.Parallel(rows, 128):
                b[i, j] = made(a, i, j)
            for i, j in T.Parallel(rows, 128):
                C[i, j] = b[rows - 1 - i, 127 - j]

    return main


@pytest.mark.parametrize(
    ("dtype", "rows", "made", "registers"),
    [
        ("int8", 16, lambda a, i, j: a[i, j] * 2, 16),
        ("float32", 16, lambda a, i, j: a[i, j] * a[i, j], 16),
        ("float32", 32, lambda a, i, j: a[i, j] * 2, 0),
        ("float32", 4, lambda a, i, j: a[i, j] * 2, 0),
        ("int8", 8, lambda a, i, j: a[i, j] + a[i, j // 64], 8),
    ],
    ids=["bytes", "read twice", "no room", "one vector a thread", "and an element for many"],
)
def test_all_vectors_of_a_thread_are_read_first(dtype, rows, made, registers):
    a = np.random.default_rng(0).integers(-5, 6, (rows, 128)).astype(dtype)
    main = kernel(dtype, rows, made)
    agree(main, a, expected=made(a, *np.indices(a.shape))[::-1, ::-1].astype(np.float32))
    lowered = lower(elaborated(main, (a,), None, {}, {}), SM80)
    source = cuda.source(to_tir(lowered, SM80), SM80, "kernel")
    assert (f"a_v_all_ptr[{registers}]" in source) if registers else "_all_ptr" not in source
