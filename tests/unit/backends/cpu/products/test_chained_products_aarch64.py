"""Products of what a product gave, by pairs of rows: rows that no tensor has are left out."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from aarch64 import QEMU, EmulatedLibrary

from tilec.backends.cpu.nodes import MicroGemm, PackWords
from tilec.backends.pipeline import lower
from tilec.ir.exprs import int_value
from tilec.ir.nodes import walk
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

TEXT = """
kernel("chained")
M = dim(int32)
A = tensor(bfloat16, (M, 32), ("M", "32"), access="in")
B = tensor(bfloat16, (32, 64), ("32", "64"), access="in")
V = tensor(bfloat16, (64, 32), ("64", "32"), access="in")
C = tensor(float32, (M, 32), ("M", "32"), access="out")
with launch((M + {last}) // {rows}, threads=(128, 1, 1)) as (b,):
    a = alloc(bfloat16, ({rows}, 32), "shared.dyn")
    w = alloc(bfloat16, (32, 32), "shared.dyn")
    v = alloc(bfloat16, (32, 32), "shared.dyn")
    s = alloc(float32, ({rows}, 32), "local.fragment")
    p = alloc(bfloat16, ({rows}, 32), "local.fragment")
    o = alloc(float32, ({rows}, 32), "local.fragment")
    copy(A[b * {rows}:+{rows}, 0:+32], a[0:+{rows}, 0:+32])
    t = alloc(float32, ({rows},), "local.fragment")
    for i in parallel({rows}):
        t[i] = 2.0
    fill(o[0:+{rows}, 0:+32], 0.0)
    for k in pipelined(0, 2, num_stages=1):
        copy(B[0:+32, k * 32:+32], w[0:+32, 0:+32])
        copy(V[k * 32:+32, 0:+32], v[0:+32, 0:+32])
        gemm(a[0:+{rows}, 0:+32], w[0:+32, 0:+32], s[0:+{rows}, 0:+32], clear=True)
        for i, j in parallel({rows}, 32):
            p[i, j] = cast(bfloat16, s[i, j] * t[i])
        for i, j in parallel({rows}, 32):
            o[i, j] = o[i, j] * t[i]
        gemm(p[0:+{rows}, 0:+32], v[0:+32, 0:+32], o[0:+{rows}, 0:+32], clear=False)
    copy(o[0:+{rows}, 0:+32], C[b * {rows}:+{rows}, 0:+32])
"""
TARGET = "aarch64+bf16"


def text(rows: int) -> str:
    return TEXT.format(rows=rows, last=rows - 1)


def test_rows_that_no_tensor_has_are_left_out() -> None:
    body = lower(parse_kernel(text(16)), parse_target(TARGET)).body
    products = [stmt for stmt in walk(body) if isinstance(stmt, MicroGemm)]
    (packing,) = (stmt for stmt in walk(body) if isinstance(stmt, PackWords) and stmt.columns is not None)
    assert [product.block.form for product in products] == ["bfmmla", "bfmmla"]
    assert all(int_value(product.rows) is None for product in products)
    assert products[1].a.region.buffer.same_as(packing.dst.buffer)


@pytest.mark.skipif(QEMU is None, reason="qemu-aarch64 (package qemu-user) is not installed")
def test_results_are_those_of_all_rows() -> None:
    library, rng = (
        EmulatedLibrary({f"by_{rows}": text(rows) for rows in (13, 16)}, TARGET),
        np.random.default_rng(0),
    )
    b, v = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((32, 64), (64, 32)))
    twice = np.repeat([2.0, 1.0], 32).astype(np.float32)
    for M in (1, 12, 16, 31):
        a = rng.standard_normal((M, 32)).astype(ml_dtypes.bfloat16)
        between = (2 * (a.astype(np.float32) @ b.astype(np.float32))).astype(ml_dtypes.bfloat16)
        expected = between.astype(np.float32) * twice @ v.astype(np.float32)
        for name in library.images:
            found = np.full((M, 32), 99, np.float32)
            library.run(name, [a, b, v, found], {"M": M})
            np.testing.assert_allclose(found, expected, rtol=2e-2, atol=1.0, err_msg=f"{name} {M}")
