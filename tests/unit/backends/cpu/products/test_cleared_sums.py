"""Sums that a statement clears in front of a product are as good as ones that the product clears."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Library

from tilec.backends.cpu.nodes import MicroGemm
from tilec.backends.pipeline import lower
from tilec.ir.nodes import walk
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

#: Scores of keys, each twice, and what each column of tiles of 16 keys adds up to.
TEXT = """
kernel("k")
S = dim(int32)
Q = tensor(float32, ({m}, 32), ("{m}", "32"), access="in")
K = tensor(float32, (S, 32), ("S", "32"), access="in")
Y = tensor(float32, ({m}, S), ("{m}", "S"), access="out")
O = tensor(float32, ({m}, 16), ("{m}", "16"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    q = alloc(float32, ({m}, 32), "shared.dyn")
    b = alloc(float32, (16, 32), "shared.dyn")
    s = alloc(float32, ({m}, 16), "local.fragment")
    o = alloc(float32, ({m}, 16), "local.fragment")
    copy(Q[0:+{m}, 0:+32], q[0:+{m}, 0:+32])
    fill(o[0:+{m}, 0:+16], 0.0)
    for k in pipelined(0, (S + 15) // 16, num_stages=2):
        copy(K[k * 16:+16, 0:+32], b[0:+16, 0:+32])
        fill(s[0:+{m}, 0:+16], {first})
        gemm(q[0:+{m}, 0:+32], b[0:+16, 0:+32], s[0:+{m}, 0:+16], trans_a=False, trans_b=True, clear=False)
        for i, j in parallel({m}, 16):
            s[i, j] = s[i, j] * 2.0
        copy(s[0:+{m}, 0:+16], Y[0:+{m}, k * 16:+16])
        for i, j in parallel({m}, 16):
            o[i, j] = o[i, j] + s[i, j]
    copy(o[0:+{m}, 0:+16], O[0:+{m}, 0:+16])
"""


@pytest.mark.parametrize(("rows", "form"), [(4, "across"), (5, "fma")])
def test_few_rows_read_keys_where_they_lie(rows: int, form: str) -> None:
    kernel = lower(
        parse_kernel(TEXT.format(m=rows, first=0.0)), parse_target("x86-64-v3"), until="forward_operands"
    )
    found = next(stmt for stmt in walk(kernel.body) if isinstance(stmt, MicroGemm))
    assert (found.block.form, found.b.region.buffer.scope() == "global") == (form, form == "across")


@pytest.mark.parametrize("first", [0.0, -1.5])
@pytest.mark.parametrize("rows", [1, 4])
def test_results_with_a_last_tile_that_the_tensor_has_not_all_of(rows: int, first: float) -> None:
    rng = np.random.default_rng(0)
    q, k = (rng.integers(-4, 5, (count, 32)).astype(np.float32) for count in (rows, 37))
    y, o = np.full((rows, 37), np.nan, np.float32), np.full((rows, 16), np.nan, np.float32)
    Library({"k": TEXT.format(m=rows, first=first)}, "x86-64-v3").run("k", [q, k, y, o], {"S": 37})
    scores = np.full((rows, 48), first)
    scores[:, :37] += q @ k.T
    np.testing.assert_array_equal(y, 2 * scores[:, :37])
    np.testing.assert_array_equal(o, 2 * scores.reshape(rows, 3, 16).sum(axis=1))


#: Sums that a product clears, another one adds to, and a loop reads.
TWICE = """
kernel("k")
M = dim(int32)
A = tensor(uint8, (8, 64), ("8", "64"), access="in")
B = tensor(int8, (M, 64), ("M", "64"), access="in")
Y = tensor(float32, (8, M), ("8", "M"), access="out")
with launch((M + 31) // 32, threads=(128, 1, 1)) as (bx,):
    a = alloc(uint8, (8, 64), "shared.dyn")
    high = alloc(int8, (32, 64), "shared.dyn")
    low = alloc(int8, (32, 64), "shared.dyn")
    s = alloc(int32, (8, 32), "local.fragment")
    for i, k in parallel(8, 64):
        a[i, k] = A[i, k] & uint8(15)
    copy(B[bx * 32:+32, 0:+64], high[0:+32, 0:+64])
    copy(B[bx * 32:+32, 0:+64], low[0:+32, 0:+64])
    gemm(a[0:+8, 0:+64], high[0:+32, 0:+64], s[0:+8, 0:+32], trans_a=False, trans_b=True, clear=True)
    for i, j in parallel(8, 32):
        s[i, j] = s[i, j] * 256
    gemm(a[0:+8, 0:+64], low[0:+32, 0:+64], s[0:+8, 0:+32], trans_a=False, trans_b=True, clear=False)
    for i, j in parallel(8, 32):
        Y[i, bx * 32 + j] = cast(float32, s[i, j])
"""


def test_what_follows_two_products_is_done_on_the_registers_of_the_second() -> None:
    """Neither ends at a column that is known at run time alone."""
    lowered = lower(parse_kernel(TWICE), parse_target("x86-64-v4+vnni"), until="fuse_epilogue")
    first, second = (stmt for stmt in walk(lowered.body) if isinstance(stmt, MicroGemm))
    assert (bool(first.body), bool(second.body)) == (True, True)


@pytest.mark.parametrize("count", [1, 31, 33])
def test_results_of_two_products(count: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 255, (8, 64), np.uint8), rng.integers(-128, 128, (count, 64), np.int8)
    y = np.full((8, count), np.nan, np.float32)
    Library({"k": TWICE}, "x86-64-v3").run("k", [a, b, y], {"M": count})
    np.testing.assert_array_equal(y, 257 * ((a & 15).astype(np.int64) @ b.T.astype(np.int64)))
