"""Bands of tiles of products: their axis, their width, and what they say in the kernel."""

from __future__ import annotations

import pytest

import tilec.language as T
from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.cuda.matmul.nodes import MatmulRoles, TileOrder
from tilec.backends.cuda.warp_roles.strategy import roles_of
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel
from tilec.language.frontend.elaborate import elaborate
from tilec.language.frontend.schedules import scheduled
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
OPEN = {name: Guard(div=8) for name in "MNK"}


def product(rows_first: bool, columns: int = 128, leaves: bool = False) -> Kernel:
    """A product whose author numbers blocks over rows or over columns first."""

    def factory(M, N, K):
        grid = [T.ceildiv(N, columns), T.ceildiv(M, 128)]

        @T.prim_func
        def kernel(
            A: T.Tensor((M, K), "float16"),
            B: T.Tensor((N, K), "float16"),
            n: T.int32,
            C: T.Tensor((M, N), "float16"),
        ):
            with T.Kernel(*grid[:: -1 if rows_first else 1], threads=256) as (p, q):
                bx, by = (q, p) if rows_first else (p, q)
                left = T.alloc_shared((128, 64), "float16")
                right = T.alloc_shared((columns, 64), "float16")
                acc = T.alloc_fragment((128, columns), "float32")
                if by * 128 < n if leaves else True:
                    T.clear(acc)
                    for k in T.Pipelined(T.ceildiv(K, 64), num_stages=3):
                        T.copy(A[by * 128, k * 64], left)
                        T.copy(B[bx * columns, k * 64], right)
                        T.gemm(left, right, acc, transpose_B=True)
                    T.copy(acc, C[by * 128, bx * columns])

        return kernel

    return elaborate(factory, name="product", dims=OPEN, args={}, config={})


def order(kernel: Kernel) -> TileOrder:
    """How its tiles are walked."""
    return roles_of(lower(kernel, SM90A, until="assign_roles").launches[0], MatmulRoles).order


@pytest.mark.parametrize("rows_first", [False, True])
def test_bands_go_along_rows(rows_first):
    assert order(product(rows_first)) == TileOrder(0 if rows_first else 1, 16, narrows=True)


def test_bands_go_as_asked():
    assert order(scheduled(product(True), {"group_order": "row"})) == TileOrder(1, 8)
    assert order(scheduled(product(True), {"group": 8})) == TileOrder(0, 8)


def test_bands_go_across_rows_of_which_blocks_leave():
    assert order(product(False, leaves=True)) == TileOrder(0, 32)


def test_bands_go_along_pairs_that_are_asked_for():
    paired = order(scheduled(product(False), {"cluster": [2, 1]}))
    assert (paired.axis, paired.band, paired.pair, paired.narrows) == (0, 8, 0, False)
    paired = order(scheduled(product(False), {"cluster": [1, 2]}))
    assert (paired.axis, paired.band, paired.pair, paired.narrows) == (1, 16, 1, True)


def test_bands_of_pairs_go_as_asked():
    paired = order(scheduled(product(False), {"cluster": [2, 1], "group": 16}))
    assert (paired.axis, paired.band) == (1, 16)


def test_bands_of_wide_tiles_keep_their_width():
    assert not order(product(False, columns=256)).narrows


def test_bands_are_half_as_wide_where_rows_of_tiles_are_deep():
    text = cuda.source(to_tir(lower(product(False), SM90A), SM90A), SM90A, "product")
    assert "int band_bits = ((((K + 63) >> 6) > 100) ? 3 : 4);" in text
