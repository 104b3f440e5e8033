"""Conditions of which TVM's analyzer cannot multiply the ends of ranges."""

from __future__ import annotations

import re

import tilec.language as T
from tilec.backends.cuda.codegen import images
from tilec.backends.cuda.emit.entry import lower_kernel
from tilec.backends.pipeline import lower
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")


@T.prim_func
def products(
    A: T.Tensor((3, 1000, 1088), "float16"),
    B: T.Tensor((3, 1160, 1088), "float16"),
    C: T.Tensor((3, 1000, 1160), "float32"),
):
    """Three products, whose tiles persistent blocks take in groups of eight columns."""
    with T.Kernel(132, threads=256) as w:
        a, b = T.alloc_shared((128, 64), "float16"), T.alloc_shared((128, 64), "float16")
        c = T.alloc_fragment((128, 128), "float32")
        for e, by, bx in T.Persistent([3, 8, 10], 132, w):
            T.clear(c)
            for k in T.Pipelined(17, num_stages=2):
                T.copy(A[e, by * 128 : (by + 1) * 128, k * 64 : (k + 1) * 64], a)
                T.copy(B[e, bx * 128 : (bx + 1) * 128, k * 64 : (k + 1) * 64], b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C[e, by * 128 : (by + 1) * 128, bx * 128 : (bx + 1) * 128])


def test_tiles_of_grids_that_are_taken_apart_by_quotients() -> None:
    kernel = elaborate(products, name="products", dims={}, args={}, config={}, open_dims=True)
    text = images.source(lower_kernel(lower(kernel, SM90A), SM90A), SM90A, "p")
    assert re.search(r"bool \w+\[1\];", text), "no condition is kept in an array"
