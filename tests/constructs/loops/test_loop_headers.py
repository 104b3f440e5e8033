"""Loops whose bodies write what their bounds are read from: Python reads a bound once."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree

import tilec.language as T

LOOPS = {
    "down": lambda n: T.serial(n, -1, -1),
    "from": lambda n: T.serial(n, 6),
    "unrolled": lambda n: T.unroll(n, 5),
    "threes": lambda n: T.serial(n, 9, 3),
    "steps": lambda n: T.serial(0, n * 3, n),
    "pipelined": lambda n: T.Pipelined(n, 5, num_stages=2),
}
TRIPS = {
    "down": [2, 1, 0],
    "from": [2, 3, 4, 5],
    "unrolled": [2, 3, 4],
    "threes": [2, 5, 8],
    "steps": [0, 2, 4],
    "pipelined": [2, 3, 4],
}


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("memory", ["variable", "shared"])
def test_bounds_are_read_once(name, memory):
    header = LOOPS[name]

    @T.prim_func
    def variable(Out: T.Tensor((2, 8), "int32")):
        with T.Kernel(2, threads=32) as bx:
            n, t = T.alloc_var("int32", init=2), T.alloc_fragment((8,), "int32")
            T.clear(t)
            for u in header(n):
                n = bx + 3
                for i in T.Parallel(8):
                    t[i] = t[i] * 10 + u
            T.copy(t, Out[bx, 0])

    @T.prim_func
    def shared(Out: T.Tensor((2, 8), "int32")):
        with T.Kernel(2, threads=32) as bx:
            n, t = T.alloc_shared((2,), "int32"), T.alloc_fragment((8,), "int32")
            T.clear(t)
            T.fill(n, 2)
            for u in header(n[1]):
                T.fill(n, bx + 3)
                for i in T.Parallel(8):
                    t[i] = t[i] * 10 + u
            T.copy(t, Out[bx, 0])

    number = int("".join(map(str, TRIPS[name])))
    kernel = variable if memory == "variable" else shared
    agree(kernel, expected=np.full((2, 8), number, np.int32))
