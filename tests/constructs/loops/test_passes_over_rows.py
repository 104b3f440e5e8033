"""Loops that read rows a second time, beside what a first pass has found of each."""

from __future__ import annotations

import math

import numpy as np
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.nodes import ThreadLoop
from tilec.backends.pipeline import lower
from tilec.ir.layout_algebra import thread_terms
from tilec.ir.nodes import walk
from tilec.targets import parse_target


def scaled(rows, threads):
    """Each row over its largest element, in blocks of 64 columns."""

    @T.prim_func
    def kernel(X: T.Tensor((40, 256), "float16"), Y: T.Tensor((40, 256), "float16")):
        with T.Kernel(T.ceildiv(40, rows), threads=threads) as bx:
            x, m = T.alloc_fragment((rows, 64), "float32"), T.alloc_fragment((rows,), "float32")
            T.fill(m, 1)
            for t in T.serial(4):
                for i, j in T.Parallel(rows, 64):
                    x[i, j] = T.if_then_else(bx * rows + i < 40, X[bx * rows + i, t * 64 + j], 0)
                T.reduce_max(x, m, dim=1, clear=False)
            for t in T.serial(4):
                for i, j in T.Parallel(rows, 64):
                    if bx * rows + i < 40:
                        Y[bx * rows + i, t * 64 + j] = X[bx * rows + i, t * 64 + j] / m[i]

    return kernel


def test_lanes_that_hold_a_row_together_share_its_elements():
    x = np.random.default_rng(1).integers(-9, 10, (40, 256)).astype(np.float16)
    for rows, threads in ((16, 32), (8, 128), (3, 64)):
        agree(scaled(rows, threads), x)
    made = lower(elaborated(scaled(16, 32), (x,), None, {}, {}), parse_target("sm_80"))
    (last,) = (
        stmt
        for stmt in walk(made.launches[0].body)
        if isinstance(stmt, ThreadLoop)
        and any(inner.buffer.name == "Y" for inner in stmt.body if hasattr(inner, "buffer"))
    )
    held = [term for axis in range(2) for term in thread_terms(last.layout, axis)]
    assert math.prod(term.size for term in held) == 32
