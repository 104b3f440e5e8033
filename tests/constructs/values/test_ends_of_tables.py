"""Elements at the ends of int32 that lead to places, and sums of elements with names, wrap around: such a
place is outside, whatever a condition on it says. Metal's source is compiled here: compilers of C++ take it
that signed sums do not wrap around."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from agree import agree, elaborated
from metal_source import OnMetal

import tilec.language as T

N = T.dynamic("N")
LENGTH = 70
ENDS = [2**31 - 1, -(2**31), 2**31 - 2, -1, -2, LENGTH, LENGTH - 1]


def looked_up(way):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), table: T.Tensor((N,), "int32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 64), threads=64) as b:
            if way == "safe value":
                T.annotate_safe_value({X: 0})
            for i in T.Parallel(64):
                p = b * 64 + i
                if p < N:
                    t = table[p]
                    if way == "below":
                        if t + 1 < N:
                            Y[p] = X[t + 1]
                        else:
                            Y[p] = -9
                    elif way == "chosen":
                        Y[p] = T.if_then_else(t >= 0, X[t + 1], -9)
                    elif way == "variable":
                        place = T.alloc_var("int32")
                        place = t
                        place += 1
                        if place > 0:
                            Y[p] = X[place]
                        else:
                            Y[p] = -9
                    else:
                        Y[p] = X[t + 1]

    return main


@pytest.mark.parametrize("way", ["plain", "safe value", "below", "chosen", "variable"])
def test_places_behind_the_last_int32_are_outside(way, tmp_path):
    rng = np.random.default_rng(0)
    x, table = rng.integers(1, 9, LENGTH).astype("float32"), rng.integers(0, LENGTH, LENGTH).astype("int32")
    table[: len(ENDS)] = ENDS
    places = table + np.int32(1)
    found = np.where((places >= 0) & (places < LENGTH), x[places % LENGTH], 0)
    taken = {"below": places < LENGTH, "chosen": table >= 0, "variable": places > 0}.get(way, True)
    expected = np.where(taken, found, -9).astype("float32")
    agree(looked_up(way), x, table, expected=expected, targets=("cpu", "sm_80", "sm_90a", "gfx942"))
    assert np.array_equal(on_metal(looked_up(way), tmp_path, x, table, np.empty_like(x)), expected)


def summed(way):
    @T.prim_func
    def main(A: T.Tensor((N,), "int32"), Y: T.Tensor((N, 3), "int32")):
        with T.Kernel(T.ceildiv(N, 64), threads=64) as b:
            x, y = (T.alloc_fragment((64,), "int32") for _ in range(2))
            for i in T.Parallel(64):
                p = b * 64 + i
                if way == "fragments":
                    x[i] = A[p] + 2147483600
                    y[i] = A[p] * 3
                elif p < N:
                    far, triple = A[p] + 2147483600, A[p] * 3
                    if way == "variables":
                        variables = [T.alloc_var("int32"), T.alloc_var("int32")]
                        variables[0], variables[1] = far, triple
                        far, triple = variables
                    store(Y, p, far, triple, A[p])
            if way == "fragments":
                for i in T.Parallel(64):
                    if b * 64 + i < N:
                        store(Y, b * 64 + i, x[i], y[i], A[b * 64 + i])

    return main


@T.macro
def store(Y, p, far, triple, a):
    Y[p, 0] = T.if_then_else(far > 0, far // 3, -1)
    Y[p, 1] = triple >> 1
    Y[p, 2] = T.if_then_else(triple > a, 1, 0)


@pytest.mark.parametrize("way", ["names", "variables", "fragments"])
def test_sums_of_elements_that_have_names_wrap_around(way, tmp_path):
    a = np.random.default_rng(0).integers(-(2**31), 2**31, 2 * LENGTH).astype("int32")
    a[:LENGTH] %= 50
    far, triple = a + np.int32(2147483600), a * np.int32(3)
    expected = np.stack([np.where(far > 0, far // 3, -1), triple >> 1, triple > a], 1).astype("int32")
    agree(summed(way), a, expected=expected, targets=("cpu", "sm_80", "gfx942"))
    assert np.array_equal(on_metal(summed(way), tmp_path, a, np.empty_like(expected)), expected)


def on_metal(kernel, folder: Path, *arrays):
    """The last array, which a kernel writes, after a run of its Metal source."""
    made = elaborated(kernel, arrays[:-1], None, {}, {})
    OnMetal(made, folder)(list(arrays), {"N": len(arrays[0])})
    return arrays[-1]
