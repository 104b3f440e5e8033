"""Operands that threads make in registers, and when their products are waited for."""

from __future__ import annotations

import pytest

import tilec.language as T
from tilec.backends.cuda.nodes import ProductsWait, WarpgroupProduct
from tilec.backends.pipeline import lower
from tilec.ir.nodes import For, walk
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

HOPPER = parse_target("sm_90a")


def converted(dtype):
    """A product whose first operand has another type in memory."""

    @T.prim_func
    def kernel(
        A: T.Tensor((1024, 1024), dtype),
        B: T.Tensor((1024, 1024), "float16"),
        C: T.Tensor((1024, 1024), "float16"),
    ):
        with T.Kernel(8, 8, threads=256) as (bx, by):
            As, Bs = T.alloc_shared((128, 64), "float16"), T.alloc_shared((128, 64), "float16")
            sums = T.alloc_fragment((128, 128), "float32")
            T.clear(sums)
            for k in T.Pipelined(16, num_stages=3):
                T.copy(A[by * 128, k * 64], As)
                T.copy(B[bx * 128, k * 64], Bs)
                T.gemm(As, Bs, sums, transpose_B=True)
            T.copy(sums, C[by * 128, bx * 128])

    made = elaborate(kernel, name="kernel", dims={}, args={}, config={})
    return lower(made, HOPPER, until="place_product_waits").launches[0]


@pytest.mark.parametrize("dtype", ["float32", "float8_e4m3fn"])
def test_a_product_of_registers_that_a_trip_makes_is_complete_at_its_end(dtype):
    loops = [stmt for stmt in walk(converted(dtype).body) if isinstance(stmt, For)]
    loop = next(stmt for stmt in loops if any(isinstance(inner, WarpgroupProduct) for inner in stmt.body))
    product, wait = (stmt for stmt in loop.body if isinstance(stmt, (WarpgroupProduct, ProductsWait)))
    assert isinstance(product, WarpgroupProduct)
    assert product.a.buffer.scope() == "local.fragment"
    assert isinstance(wait, ProductsWait)
    assert wait.pending == 0
