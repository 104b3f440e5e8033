"""Tiles that a loop in a pipeline loads part by part: pages of a table, single rows."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, roads

import tilec.language as T

ROWS, TILE, DEPTH, WIDE = 512, 64, 256, 64


def product(form, page):
    """C = A[rows]^T B, the rows of A by a table of pages of so many rows."""

    @T.prim_func
    def kernel(
        A: T.Tensor((ROWS, TILE), "float16"),
        pages: T.Tensor((DEPTH // page,), "int32"),
        B: T.Tensor((DEPTH, WIDE), "float16"),
        C: T.Tensor((TILE, WIDE), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((TILE, TILE), "float16"), T.alloc_shared((TILE, WIDE), "float16")
            acc = T.alloc_fragment((TILE, WIDE), "float32")
            T.clear(acc)
            for k in T.Pipelined(DEPTH // TILE, num_stages=2):
                if form == "apart":
                    for half in (0, 1):
                        T.copy(A[pages[2 * k + half] * 32, 0], a[half * 32 : (half + 1) * 32, :])
                else:
                    for q in T.serial(TILE // page):
                        first = pages[k * (TILE // page) + q] * page
                        if form == "copy":
                            T.copy(A[first : first + page, :], a[q * page : (q + 1) * page, :])
                        else:
                            for i, j in T.Parallel(page, TILE):
                                a[q * page + i, j] = A[first + i, j]
                T.copy(B[k * TILE, 0], b)
                T.gemm(a, b, acc, transpose_A=True)
            T.copy(acc, C)

    return kernel


@pytest.mark.parametrize(("form", "page"), [("copy", 16), ("copy", 1), ("loop", 4)])
def test_pages_of_a_tile_run_ahead_together(form, page):
    rng = np.random.default_rng(7)
    a, b = ((rng.standard_normal(shape) / 4).astype(np.float16) for shape in ((ROWS, TILE), (DEPTH, WIDE)))
    pages = rng.integers(0, ROWS // page + 1, DEPTH // page).astype(np.int32)
    agree(product(form, page), a, pages, b)
    ahead = {
        road.statement[-1] for road in roads(product(form, page), a, pages, b) if road.kind == "cp.async"
    }
    assert ahead == {"a", "b"}


@pytest.mark.parametrize(
    ("form", "page", "kind"), [("copy", 16, "tma"), ("copy", 1, "cp.async"), ("loop", 16, "cp.async")]
)
def test_producers_load_parts_that_are_no_boxes_by_all_of_their_threads(form, page, kind):
    shapes = ((ROWS, TILE), (DEPTH // page,), (DEPTH, WIDE))
    given = [np.zeros(shape, np.int32 if len(shape) == 1 else np.float16) for shape in shapes]
    found = roads(product(form, page), *given, target="sm_90a")
    (loading,) = [road for road in found if road.statement.endswith("-> a")]
    assert (loading.kind, loading.loss) == (kind, None)


def test_copies_to_parts_that_wait_are_told():
    shapes = ((ROWS, TILE), (DEPTH // 32,), (DEPTH, WIDE))
    given = [np.zeros(shape, np.int32 if len(shape) == 1 else np.float16) for shape in shapes]
    found = roads(product("apart", 32), *given)
    told = {road.loss.condition for road in found if road.kind == "waits" and road.loss is not None}
    assert told == {"it fills a part of a tile, and whole tiles alone have versions"}


@pytest.mark.parametrize("page", [16, 4])
def test_keys_and_values_of_a_page_run_ahead(page):
    @T.prim_func
    def main(A: T.Tensor((ROWS, TILE), "float16"), B: T.Tensor((ROWS, WIDE), "float16"),
             pages: T.Tensor((DEPTH // page,), "int32"), C: T.Tensor((TILE, WIDE), "float32")):  # fmt: skip
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((TILE, TILE), "float16"), T.alloc_shared((TILE, WIDE), "float16")
            acc = T.alloc_fragment((TILE, WIDE), "float32")
            T.clear(acc)
            for k in T.Pipelined(DEPTH // TILE, num_stages=2):
                for q in T.serial(TILE // page):
                    first = pages[k * (TILE // page) + q] * page
                    T.copy(A[first : first + page, :], a[q * page : (q + 1) * page, :])
                    T.copy(B[first : first + page, :], b[q * page : (q + 1) * page, :])
                T.gemm(a, b, acc, transpose_A=True)
            T.copy(acc, C)

    rng = np.random.default_rng(8)
    a, b = ((rng.standard_normal(shape) / 4).astype(np.float16) for shape in ((ROWS, TILE), (ROWS, WIDE)))
    pages = rng.integers(0, ROWS // page + 1, DEPTH // page).astype(np.int32)
    agree(main, a, b, pages)
    for target in ("sm_80", "sm_90a"):
        found = [road for road in roads(main, a, b, pages, target=target) if road.kind in ("cp.async", "tma")]
        assert [road.statement[-1] for road in found] == ["a", "b"]
