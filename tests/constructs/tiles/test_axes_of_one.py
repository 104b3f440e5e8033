"""Tiles with an axis of one element: stores beside that element leave the tile as it is."""

from __future__ import annotations

import pytest
from agree import agree, numbers

import tilec.language as T


def shifted(scope):
    """Rows plus a filled tile that every iteration stores to, at a column that it does not have."""

    @T.prim_func
    def main(B: T.Tensor((8, 1), "int32"), Z: T.Tensor((8, 1), "int32")):
        with T.Kernel(1, threads=32):
            read, kept = T.alloc_shared((8, 1), "int32"), T.alloc_buffer((8, 1), "int32", scope=scope)
            T.copy(B, read)
            T.fill(kept, 5)
            for i, j in T.Parallel(8, 1):
                kept[i, j + 1] = read[i, j]
            for i, j in T.Parallel(8, 1):
                Z[i, j] = kept[i, j] + read[i, j] * 100

    return main


@pytest.mark.parametrize("scope", ["shared", "local.fragment"])
def test_only_stores_to_the_element_overwrite_what_fills_it(scope):
    rows = numbers(8, 1, dtype="int32")
    agree(shifted(scope), rows, expected=rows * 100 + 5)
