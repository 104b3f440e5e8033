"""How many trips blocks read ahead that have a multiprocessor each."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.nodes import AheadLoop
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Store, walk
from tilec.targets import parse_target

ROWS, WIDE = 32, 64


def column_sums(rows: int, columns: int):
    """Sums of columns, rows in turns."""

    @T.prim_func
    def main(X: T.Tensor((rows, columns), "float16"), Y: T.Tensor((columns,), "float32")):
        with T.Kernel(columns // WIDE, threads=128) as bx:
            x = T.alloc_fragment((ROWS, WIDE), "float32")
            total = T.alloc_fragment((WIDE,), "float32")
            T.clear(total)
            for k in T.serial(rows // ROWS):
                T.copy(X[k * ROWS, bx * WIDE], x)
                T.reduce_sum(x, total, dim=0, clear=False)
            T.copy(total, Y[bx * WIDE])

    return main


@pytest.mark.parametrize(("columns", "trips"), [(WIDE * 2, 6), (WIDE * 4096, 4)])
def test_blocks_alone_read_more_trips_ahead(columns, trips):
    x = np.zeros((32 * ROWS, columns), np.float16)
    kernel = lower(elaborated(column_sums(*x.shape), (x,), None, {}, {}), parse_target("sm_90a"))
    ahead = [stmt for stmt in walk(kernel.launches[0].body) if isinstance(stmt, AheadLoop)]
    depths = {
        int(stmt.buffer.shape[0]) for loop in ahead for stmt in walk(loop.body) if isinstance(stmt, Store)
    }
    assert depths == {trips}


def test_trips_read_ahead_add_up():
    x = np.random.default_rng(0).integers(-9, 10, (7 * ROWS, WIDE)).astype(np.float16)
    agree(column_sums(*x.shape), x, expected=x.astype(np.float32).sum(0))
