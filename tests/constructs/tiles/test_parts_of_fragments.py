"""Parts of fragments: halves and slices of what a product leaves, which threads hold in registers."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated, halves

import tilec.language as T
from tilec.backends.base import backend_of
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.targets import parse_target


def cuda_source(kernel, target="sm_80"):
    chip = parse_target(target)
    return backend_of(chip).text(
        "source", to_tir(lower(elaborated(kernel, (), None, {}, {}), chip), chip), chip, "k"
    )


def accumulated(finish, columns=64):
    """A product of 128 x 128 x 32, what is left of which ``finish`` writes to (128, columns)."""

    @T.prim_func
    def main(A: T.Tensor((128, 32), "float16"), B: T.Tensor((128, 32), "float16"),
             Y: T.Tensor((128, columns), "float32")):  # fmt: skip
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((128, 32), "float16"), T.alloc_shared((128, 32), "float16")
            c = T.alloc_fragment((128, 128), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
            finish(c, Y)

    return main


@T.macro
def gated(c, Y):
    o = T.alloc_fragment((128, 64), "float32")
    for i, j in T.Parallel(128, 64):
        o[i, j] = T.max(c[i, j], 0) * c[i, j + 64]
    T.copy(o, Y)


@T.macro
def turned_pairs(c, Y):
    for i, j in T.Parallel(128, 64):
        x = c[i, j]
        y = c[i, j + 64]
        c[i, j] = x * 2 - y
        c[i, j + 64] = y * 2 + x
    T.copy(c, Y)


@T.macro
def slices(c, Y):
    o = T.alloc_shared((128, 32), "float32")
    for p in range(4):
        T.copy(c[:, p * 32 : (p + 1) * 32], o)
        T.copy(o, Y[:, p * 32 : (p + 1) * 32])


@T.macro
def guarded_slices(c, Y):
    o = T.alloc_shared((128, 32), "float32")
    for p in range(4):
        for i, j in T.Parallel(128, 128):
            if j < 32:
                o[i, j] = c[i, j + p * 32] + p
        T.copy(o, Y[:, p * 32 : (p + 1) * 32])


@T.macro
def group_maxima(c, Y):
    top = T.alloc_fragment((128,), "float32")
    for p in range(4):
        part = T.alloc_fragment((128, 32), "float32")
        for i, j in T.Parallel(128, 32):
            part[i, j] = T.abs(c[i, p * 32 + j])
        T.reduce_max(part, top, dim=1)
        for i in T.Parallel(128):
            Y[i, p] = top[i]


@T.macro
def lower_rows(c, Y):
    for i, j in T.Parallel(64, 128):
        Y[i, j] = c[i + 64, j] - c[i, j]
        Y[i + 64, j] = c[i + 64, j]


@T.macro
def every_second(c, Y):
    for i, j in T.Parallel(128, 32):
        Y[i, j] = c[i, 2 * j + 64] - c[i, 2 * j + 1]
        Y[i, j + 32] = c[i, 2 * j + 65]


@T.macro
def pairs(c, Y):
    for i, j in T.Parallel(128, 64):
        Y[i, j] = T.max(c[i, 2 * j], 0) * c[i, 2 * j + 1]


@T.macro
def odd_places(c, Y):
    for i, j in T.Parallel(128, 48):
        Y[i, j] = c[i, j + 48] + c[i, j + 80]


FINISHES = {
    "gated": (gated, 64),
    "turned_pairs": (turned_pairs, 128),
    "slices": (slices, 128),
    "guarded_slices": (guarded_slices, 128),
    "group_maxima": (group_maxima, 4),
    "lower_rows": (lower_rows, 128),
    "every_second": (every_second, 64),
    "pairs": (pairs, 64),
    "odd_places": (odd_places, 48),
}


@pytest.mark.parametrize("name", FINISHES)
def test_parts_are_what_the_product_left(name):
    finish, columns = FINISHES[name]
    agree(accumulated(finish, columns), halves(128, 32, most=3), halves(128, 32, seed=1, most=3))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    "name", ["gated", "turned_pairs", "slices", "guarded_slices", "group_maxima", "every_second", "pairs"]
)
def test_parts_of_columns_stay_in_registers(name, target):
    finish, columns = FINISHES[name]
    assert "* c_shared" not in cuda_source(accumulated(finish, columns), target)


def test_rows_that_other_warps_hold_go_through_shared_memory():
    assert "* c_shared" in cuda_source(accumulated(lower_rows, 128))


def test_trips_that_end_early_are_not_written_out():
    @T.prim_func
    def main(A: T.Tensor((128, 128), "float32"), n: T.int32, Y: T.Tensor((128, 32), "float32")):
        with T.Kernel(1, threads=128):
            c, o = T.alloc_fragment((128, 128), "float32"), T.alloc_fragment((128, 32), "float32")
            T.copy(A, c)
            T.clear(o)
            for p in range(4):
                if p == n:
                    break
                for i, j in T.Parallel(128, 32):
                    o[i, j] += c[i, j + p * 32]
            T.copy(o, Y)

    for count in (0, 3):
        agree(main, halves(128, 128, most=3).astype("float32"), count)


@pytest.mark.parametrize(("first", "count"), [(0, 3), (3, 3), (2, 2), (0, 5), (5, 2)])
def test_rows_in_registers_are_stored_to_in_parts_that_do_not_divide_them(first, count):
    @T.prim_func
    def main(B: T.Tensor((2, 7, 3), "int32"), Y: T.Tensor((3,), "int32"), Z: T.Tensor((2, 7, 3), "int32")):
        with T.Kernel(1, threads=64):
            rows = T.alloc_fragment((2, 7, 3), "int32")
            T.fill(rows, 2)
            for k in T.Parallel(3):
                Y[k] = rows[0, 0, k]
            for i, j, k in T.Parallel(2, count, 3):
                rows[i, first + j, k] = B[i, j, k]
            T.copy(rows, Z)

    given = np.arange(42, dtype=np.int32).reshape(2, 7, 3) + 5
    expected = np.full((2, 7, 3), 2, np.int32)
    expected[:, first : first + count] = given[:, :count]
    agree(main, given, expected=[np.full(3, 2, np.int32), expected], targets=("sm_80", "sm_90a"))
