"""Loops from tensor to tensor that read along one axis and store along another one."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, roads

import tilec.language as T


def turned(rows, columns, dtype, along="read"):
    """B = A^T by tiles, the last variable of the loop along what is read or stored."""

    @T.prim_func
    def main(A: T.Tensor((rows, columns), dtype), B: T.Tensor((columns, rows), dtype)):
        with T.Kernel(T.ceildiv(columns, 64), T.ceildiv(rows, 32), threads=128) as (bx, by):
            if along == "read":
                for i, j in T.Parallel(32, 64):
                    B[bx * 64 + j, by * 32 + i] = A[by * 32 + i, bx * 64 + j]
            else:
                for j, i in T.Parallel(64, 32):
                    B[bx * 64 + j, by * 32 + i] = A[by * 32 + i, bx * 64 + j]

    return main


@pytest.mark.parametrize("along", ["read", "stored"])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_both_sides_move_vectors(dtype, along):
    given = np.random.default_rng(0).integers(0, 100, (96, 128)).astype(dtype)
    agree(turned(96, 128, dtype, along), given)
    for target in ("sm_80", "sm_90a"):
        tensors = [road for road in roads(turned(96, 128, dtype, along), given, target=target)
                   if "vectors" in road.instruction]  # fmt: skip
        assert {road.statement for road in tensors} == {"A -> B_turned", "B_turned -> B"}


def test_ends_that_no_tile_divides():
    given = np.random.default_rng(1).integers(0, 100, (77, 101)).astype("float16")
    agree(turned(77, 101, "float16"), given)


def test_a_condition_stays_with_what_it_lets_through():
    @T.prim_func
    def main(A: T.Tensor((60, 96), "float16"), n: T.int32, B: T.Tensor((96, 60), "float32")):
        with T.Kernel(T.ceildiv(60, 32), threads=128) as bx:
            for i, j in T.Parallel(32, 96):
                row = bx * 32 + i
                if row < n:
                    B[j, row] = A[row, j] * 2.0

    agree(main, np.random.default_rng(2).integers(0, 100, (60, 96)).astype("float16"), 41)


def test_what_is_read_along_both_axes_stays():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            for i, j in T.Parallel(64, 64):
                B[j, i] = A[i, j] + A[j, i]

    given = np.random.default_rng(3).integers(0, 100, (64, 64)).astype("float32")
    agree(main, given)
    assert not any("B_turned" in road.statement for road in roads(main, given, target="sm_80"))


def product_across(form, dtype="float16", rows=128, columns=96):
    """C = (A B^T / its largest row elements)^T, whose reduction keeps launches with sm_90a's statements."""

    @T.prim_func
    def main(
        A: T.Tensor((rows, 64), "float16"), B: T.Tensor((columns, 64), "float16"),
        C: T.Tensor((columns, rows), dtype),
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(columns, 64), T.ceildiv(rows, 64), threads=128) as (bx, by):
            a, b = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            acc, most = T.alloc_fragment((64, 64), "float32"), T.alloc_fragment((64,), "float32")
            T.copy(A[by * 64, 0], a)
            T.copy(B[bx * 64, 0], b)
            T.gemm(a, b, acc, transpose_B=True, clear_accum=True)
            T.reduce_absmax(acc, most, dim=1)
            if form == "stored":
                for i, j in T.Parallel(64, 64):
                    C[bx * 64 + j, by * 64 + i] = acc[i, j] / most[i]
            elif form == "staged":
                turned = T.alloc_shared((64, 64), dtype)
                for i, j in T.Parallel(64, 64):
                    turned[j, i] = acc[i, j] / most[i]
                T.copy(turned, C[bx * 64, by * 64])
            else:
                held = T.alloc_fragment((64, 64), dtype)
                for i, j in T.Parallel(64, 64):
                    held[j, i] = acc[i, j] / most[i]
                T.copy(held, C[bx * 64, by * 64])

    return main


def product_inputs(rows, columns):
    rng = np.random.default_rng(3)
    return [rng.standard_normal((size, 64)).astype("float16") for size in (rows, columns)]


@pytest.mark.parametrize("form", ["stored", "staged", "fragment"])
def test_results_kept_transposed_leave_by_rows(form):
    inputs = product_inputs(128, 96)
    agree(product_across(form), *inputs, rtol=1e-2, atol=1e-3)
    for target in ("sm_80", "sm_90a"):
        made = roads(product_across(form), *inputs, target=target)
        out = [road.instruction for road in made if road.statement.endswith("-> C")]
        assert out in (["vectors of 16 bytes"], ["TMA store"])
    assert "stmatrix" in [road.instruction for road in made]


def test_results_kept_transposed_whose_rows_begin_anywhere():
    agree(product_across("stored", rows=77, columns=61), *product_inputs(77, 61), rtol=1e-2, atol=1e-3)
    agree(product_across("stored", "float32"), *product_inputs(128, 96), rtol=1e-2, atol=1e-3)
