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
