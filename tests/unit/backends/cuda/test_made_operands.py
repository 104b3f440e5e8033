"""Operands that threads make in registers: of which tiles, and when their products are waited for."""

from __future__ import annotations

import pytest

import tilec.language as T
from tilec.backends.cuda.nodes import ProductsWait, WarpgroupProduct
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Alloc, For, Gemm, Store, walk
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

HOPPER = parse_target("sm_90a")


def scaled(until, read_before=False, read_behind=False, shifted=False):
    """A product whose first operand is scaled where it lies."""

    @T.prim_func
    def kernel(
        A: T.Tensor((1024, 1024), "float16"),
        B: T.Tensor((1024, 1024), "float16"),
        factors: T.Tensor((1024,), "float32"),
        C: T.Tensor((1024, 1024), "float16"),
        D: T.Tensor((1024, 1024), "float16"),
    ):
        with T.Kernel(8, 8, threads=256) as (bx, by):
            As, Bs = T.alloc_shared((128, 64), "float16"), T.alloc_shared((128, 64), "float16")
            sums = T.alloc_fragment((128, 128), "float32")
            T.clear(sums)
            for k in T.Pipelined(16, num_stages=3):
                T.copy(A[by * 128, k * 64], As)
                T.copy(B[bx * 128, k * 64], Bs)
                if read_before:
                    T.gemm(As, Bs, sums, transpose_B=True)
                for i, j in T.Parallel(128, 64):
                    As[i, j] = As[i, 63 - j if shifted else j] * factors[by * 128 + i]
                T.gemm(As, Bs, sums, transpose_B=True)
                if read_behind:
                    T.copy(As, D[by * 128, k * 64])
            T.copy(sums, C[by * 128, bx * 128])

    made = elaborate(kernel, name="kernel", dims={}, args={}, config={})
    return lower(made, HOPPER, until=until).launches[0]


def written_in_place(launch) -> bool:
    """Whether threads write a tile that is loaded."""
    rings = {
        stmt.buffer for stmt in walk(launch.body) if isinstance(stmt, Alloc) and len(stmt.buffer.shape) > 2
    }
    return any(isinstance(stmt, Store) and stmt.buffer in rings for stmt in walk(launch.body))


@pytest.mark.parametrize("form", [{}, {"read_before": True}, {"read_behind": True}])
def test_a_tile_that_is_changed_where_it_lies_is_two(form):
    launch = scaled("split_roles", **form)
    assert not written_in_place(launch)
    *before, last = [stmt for stmt in walk(launch.body) if isinstance(stmt, Gemm)]
    assert last.a.buffer.name == "As_made"
    assert all(stmt.a.buffer.name == "As" for stmt in before)


def test_a_tile_whose_elements_change_places_stays_one():
    tiles = [
        stmt.buffer.name for stmt in walk(scaled("split_roles", shifted=True).body) if isinstance(stmt, Alloc)
    ]
    assert "As_made" not in tiles


def test_a_product_of_registers_that_a_trip_makes_is_complete_at_its_end():
    launch = scaled("place_product_waits")
    loops = [stmt for stmt in walk(launch.body) if isinstance(stmt, For)]
    loop = next(stmt for stmt in loops if any(isinstance(inner, WarpgroupProduct) for inner in stmt.body))
    kinds = [type(stmt) for stmt in loop.body if isinstance(stmt, (WarpgroupProduct, ProductsWait))]
    waits = [stmt for stmt in loop.body if isinstance(stmt, ProductsWait)]
    (product,) = [stmt for stmt in loop.body if isinstance(stmt, WarpgroupProduct)]
    assert product.a.buffer.scope() == "local.fragment"
    assert kinds == [WarpgroupProduct, ProductsWait]
    assert waits[0].pending == 0
