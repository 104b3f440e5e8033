"""Values that become narrower for a product do so where they are made, and are stored in that type alone."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from compiled import Library

from tilec.backends.pipeline import lower
from tilec.ir.nodes import Kernel, Store, walk
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

#: Weights of 144 keys, made of their scores in steps of 48, their sums and products. ``before`` and
#: ``behind`` are statements around the copy of each step, ``last`` one behind all steps.
TEXT = """
kernel("weigh")
Q = tensor(bfloat16, (40, 32), ("40", "32"), access="in")
K = tensor(bfloat16, (144, 32), ("144", "32"), access="in")
V = tensor(bfloat16, (144, 32), ("144", "32"), access="in")
O = tensor(float32, (40, 32), ("40", "32"), access="out")
N = tensor(float32, (40,), ("40",), access="out")
X = tensor(float32, (40, 144), ("40", "144"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    q = alloc(bfloat16, (40, 32), "shared.dyn")
    k = alloc(bfloat16, (48, 32), "shared.dyn")
    v = alloc(bfloat16, (48, 32), "shared.dyn")
    S = alloc(float32, (40, 48), "local.fragment")
    P = alloc(bfloat16, (40, 48), "local.fragment")
    o = alloc(float32, (40, 32), "local.fragment")
    total = alloc(float32, (40,), "local.fragment")
    copy(Q[0:+40, 0:+32], q[0:+40, 0:+32])
    fill(o[0:+40, 0:+32], 0.0)
    fill(total[0:+40], 0.0)
    for t in serial(0, 3, 1):
        copy(K[t * 48:+48, 0:+32], k[0:+48, 0:+32])
        gemm(q[0:+40, 0:+32], k[0:+48, 0:+32], S[0:+40, 0:+48], trans_b=True, clear={clear})
        for i, j in parallel(40, 48):
            S[i, j] = exp2(S[i, j] * 0.125)
        reduce_sum(S[0:+40, 0:+48], total[0:+40], axis=1, clear=False)
        copy(V[t * 48:+48, 0:+32], v[0:+48, 0:+32])
        {before}
        copy(S[0:+40, 0:+48], P[0:+40, 0:+48])
        gemm(P[0:+40, 0:+48], v[0:+48, 0:+32], o[0:+40, 0:+32], clear=False)
        {behind}
    copy(o[0:+40, 0:+32], O[0:+40, 0:+32])
    copy(total[0:+40], N[0:+40])
    {last}
"""
#: What something else sees of the wide values.
STORED = "copy(S[0:+40, 0:+48], X[0:+40, t * 48:+48])"
ONE_MORE = "copy(S[0:+40, 0:+48], X[0:+40, 0:+48])"
EARLIER = "fill(P[0:+40, 0:+48], bfloat16(0.0))"
PLAIN = "x86-64-v4+avx512bf16"


def text(*, before: str = "pass", behind: str = "pass", last: str = "pass", clear: str = "True") -> str:
    lines = TEXT.format(before=before, behind=behind, last=last, clear=clear).splitlines()
    return "\n".join(line for line in lines if line.strip() != "pass") + "\n"


def wide(kernel: Kernel) -> int:
    """How many stores there are of elements of float32 tiles of 40 x 48, those of a register left out."""
    stores = (stmt for stmt in walk(kernel.body) if isinstance(stmt, Store))
    return sum(str(stmt.buffer.dtype) == "float32" and len(stmt.buffer.shape) == 2
               and int(stmt.buffer.shape[1]) == 48 for stmt in stores)  # fmt: skip


@pytest.mark.parametrize(
    ("source", "stores"),
    [
        (text(), 0),
        (text(before=STORED), 1),
        (text(behind=STORED), 1),
        (text(last=ONE_MORE), 1),
        (text(clear="t == 0"), 1),
        (text(before=EARLIER), 1),
    ],
)
def test_values_are_not_stored_that_only_become_narrower(source: str, stores: int) -> None:
    assert wide(lower(parse_kernel(source), parse_target(PLAIN))) == stores


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "x86-64-v4+avx512bf16"])
def test_what_it_computes(target: str) -> None:
    library = Library({"parted": text(), "whole": text(behind=STORED)}, target)
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((n, 32)).astype(ml_dtypes.bfloat16) for n in (40, 144, 144))
    scores = np.exp2(q.astype(np.float32) @ k.astype(np.float32).T * 0.125)
    weights = scores.astype(ml_dtypes.bfloat16).astype(np.float32)
    for name in library.images:
        o, total, wide = (
            np.empty((40, 32), np.float32),
            np.empty(40, np.float32),
            np.zeros((40, 144), np.float32),
        )
        library.run(name, [q, k, v, o, total, wide], {})
        np.testing.assert_allclose(total, scores.sum(axis=1), rtol=1e-5)
        np.testing.assert_allclose(o, weights @ v.astype(np.float32), atol=0.02, rtol=0.02)
        if name == "whole":
            np.testing.assert_allclose(wide, scores, rtol=1e-5)
