"""Deferred reductions and tests over whole tiles, through the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from language_build import build, call

import tilec.language as T
from tilec.errors import SourceTypeError, SourceValueError, UnsupportedError


@pytest.mark.parametrize(
    ("op", "start"), [("sum", None), ("sum", 5), ("max", None), ("min", None), ("bitxor", None)]
)
def test_every_iteration_counts_once(op, start):
    @T.prim_func
    def main(X: T.Tensor((6, 9), "int32"), Y: T.Tensor((6,), "int32")):
        with T.Kernel(1, threads=32):
            acc, y = T.alloc_reducer((6,), "int32", op=op), T.alloc_fragment((6,), "int32")
            T.reducer_init(acc, start)
            for i, j in T.Parallel(6, 9):
                T.reducer_update(acc[i], X[i, j])
            T.finalize_reducer(acc, y)
            T.copy(y, Y)

    x, y = np.random.default_rng(0).integers(-9, 9, (6, 9)).astype(np.int32), np.zeros(6, np.int32)
    call(build(main), {}, x, y)
    plain = {"sum": x.sum(1), "max": x.max(1), "min": x.min(1), "bitxor": np.bitwise_xor.reduce(x, 1)}[op]
    np.testing.assert_array_equal(y, plain + (start or 0))


def test_the_older_form_accumulates_in_place():
    @T.prim_func
    def main(X: T.Tensor((6, 9), "float32"), Y: T.Tensor((6,), "float32")):
        with T.Kernel(1, threads=32):
            acc = T.alloc_reducer((6,), "float32", replication="all")
            T.clear(acc)
            for i, j in T.Parallel(6, 9):
                acc[i] += X[i, j]
            T.finalize_reducer(acc)
            T.copy(acc, Y)

    x, y = np.ones((6, 9), np.float32), np.zeros(6, np.float32)
    call(build(main), {}, x, y)
    np.testing.assert_array_equal(y, 9)


def test_any_and_all():
    @T.prim_func
    def main(X: T.Tensor((3, 8), "int32"), Y: T.Tensor((3, 2), "int32")):
        with T.Kernel(3, threads=32) as b:
            x = T.alloc_shared((8,), "int32")
            T.copy(X[b, 0], x)
            if T.any_of(x):
                Y[b, 0] = 1
            Y[b, 1] = T.if_then_else(T.all_of(x[0:4]), 1, 0)

    x = np.array([[0] * 8, [0, 0, 0, 0, 0, 0, 0, 3], [1, -1, 2, 4, 0, 0, 0, 0]], np.int32)
    y = np.zeros((3, 2), np.int32)
    call(build(main), {}, x, y)
    np.testing.assert_array_equal(y, [[0, 0], [1, 0], [1, 1]])


@pytest.mark.parametrize(
    ("use", "kind", "match"),
    [
        (lambda A, f: T.alloc_reducer((4,), "float32", op="mean"), SourceValueError, "bitxor"),
        (lambda A, f: T.reducer_init(f), SourceTypeError, "alloc_reducer"),
        (lambda A, f: T.reducer_update(T.alloc_reducer((4,), "int32")[0], 1), UnsupportedError, "T.Parallel"),
        (lambda A, f: T.any_of(A), SourceValueError, "on the chip"),
    ],
)
def test_wrong_reducers(use, kind, match):
    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            use(A, T.alloc_fragment((4,), "float32"))

    with pytest.raises(kind, match=match):
        build(main)
