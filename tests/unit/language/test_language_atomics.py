"""Atomic updates, scans and the reductions of bits and magnitudes, through the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from language_build import body, build, call

import tilec.language as T
from tilec.errors import SourceValueError


def test_a_histogram_counts_every_iteration():
    @T.prim_func
    def main(X: T.Tensor((100,), "int32"), H: T.Tensor((8,), "int32")):
        with T.Kernel(4, threads=32) as b:
            for i in T.Parallel(25):
                T.atomic_add(H[X[b * 25 + i]], 1)

    x = np.random.default_rng(0).integers(-2, 10, 100).astype(np.int32)
    h = np.ones(8, np.int32)
    kernel = build(main)
    assert kernel.params[1].access == "inout"
    call(kernel, {}, x, h)
    np.testing.assert_array_equal(h, 1 + np.bincount(x[(x >= 0) & (x < 8)], minlength=8))


def test_a_tile_is_added_where_it_exists():
    @T.prim_func
    def main(X: T.Tensor((5, 7), "float32"), Y: T.Tensor((7,), "float16")):
        with T.Kernel(5, 2, threads=32) as (b, c):
            t = T.alloc_fragment((4,), "float32")
            T.copy(X[b, c * 4], t)
            T.atomic_add(Y[c * 4], t)

    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    y = np.ones(7, np.float16)
    call(build(main), {}, x, y)
    np.testing.assert_array_equal(y, 1 + x.sum(0))


@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_of_a_number_over_a_slice(name):
    update = getattr(T, f"atomic_{name}")

    @T.prim_func
    def main(Y: T.Tensor((6,), "float32")):
        with T.Kernel(1, threads=32):
            update(Y[1:4], 2.0, memory_order="acq_rel")

    y = np.array([0, 1, 2, 3, 4, np.nan], np.float32)
    call(build(main), {}, y)
    inside = np.maximum if name == "max" else np.minimum
    np.testing.assert_array_equal(y, [0, *inside([1, 2, 3], 2), 4, np.nan])


def test_the_old_value_numbers_the_iterations():
    @T.prim_func
    def main(C: T.Tensor((1,), "int32"), Y: T.Tensor((6,), "int32")):
        with T.Kernel(2, threads=32) as b:
            for i in T.Parallel(3):
                place = T.atomic_add(C[0], 1, return_prev=True)
                Y[place] = b * 3 + i

    c, y = np.zeros(1, np.int32), np.full(6, -1, np.int32)
    call(build(main), {}, c, y)
    assert c[0] == 6
    assert sorted(y) == list(range(6))


def test_pairs_and_bits():
    @T.prim_func
    def main(X: T.Tensor((8,), "float32"), Y: T.Tensor((8,), "float32"), B: T.Tensor((1,), "uint32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(2):
                T.atomic_addx4(Y[i * 4], X[i * 4])
                T.atomic_addx2(Y[i * 2], X[i * 2])
                T.atomic_or(B[0], T.uint32(1) << T.cast(i, "uint32"))

    x, y, bits = np.arange(8, dtype=np.float32), np.ones(8, np.float32), np.zeros(1, np.uint32)
    call(build(main), {}, x, y, bits)
    np.testing.assert_array_equal(y, 1 + x * np.array([2, 2, 2, 2, 1, 1, 1, 1]))
    assert bits[0] == 3


def test_text():
    @T.prim_func
    def main(C: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                old = T.atomic_max(C[i], 2, memory_order="release", return_prev=True)
                C[i] = old

    assert body(main) == [
        "for i in parallel(4):",
        '    old = atomic_max(C[i], 2, order="release")',
        "    C[i] = old",
    ]


@pytest.mark.parametrize(
    ("use", "kind", "match"),
    [
        (lambda C, f: T.atomic_add(C[0:4], 1.0, memory_order="soon"), SourceValueError, "relaxed"),
        (lambda C, f: T.atomic_add(C, f, return_prev=True), NotImplementedError, "previous"),
        (lambda C, f: T.atomic_or(C[0:4], 1), SourceValueError, "float32"),
        (lambda C, f: T.atomic_addx2(C[0], 1.0), SourceValueError, "two elements"),
    ],
)
def test_wrong_updates(use, kind, match):
    @T.prim_func
    def main(C: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            f = T.alloc_fragment((4,), "float32")
            use(C, f)

    with pytest.raises(kind, match=match):
        build(main)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_scans(dim, reverse):
    @T.prim_func
    def main(X: T.Tensor((4, 6), "float16"), Y: T.Tensor((4, 6), "float32"), Z: T.Tensor((4, 6), "float16")):
        with T.Kernel(1):
            x, y = T.alloc_shared((4, 6), "float16"), T.alloc_fragment((4, 6), "float32")
            T.copy(X, x)
            T.cumsum(x, y, dim=dim, reverse=reverse)
            T.cummax(x, dim=dim, reverse=reverse)
            T.copy(y, Y)
            T.copy(x, Z)

    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float16)
    y, z = np.zeros((4, 6), np.float32), np.zeros((4, 6), np.float16)
    call(build(main), {}, x, y, z)
    turn = (lambda a: np.flip(a, dim)) if reverse else (lambda a: a)
    np.testing.assert_allclose(y, turn(turn(x.astype(np.float64)).cumsum(dim)), atol=1e-6)
    np.testing.assert_array_equal(z, turn(np.maximum.accumulate(turn(x), dim)))


@pytest.mark.parametrize(
    ("kind", "combine"), [("bitand", np.bitwise_and), ("bitor", np.bitwise_or), ("bitxor", np.bitwise_xor)]
)
def test_reductions_of_bits(kind, combine):
    reduce = getattr(T, f"reduce_{kind}")

    @T.prim_func
    def main(X: T.Tensor((4, 6), "uint8"), Y: T.Tensor((4,), "uint8"), Z: T.Tensor((4,), "uint8")):
        with T.Kernel(1):
            x, y, z = T.alloc_fragment((4, 6), "uint8"), *(T.alloc_fragment((4,), "uint8") for _ in "yz")
            T.copy(X, x)
            T.fill(z, 0b10101)
            reduce(x, y)
            reduce(x, z, clear=False)
            T.copy(y, Y)
            T.copy(z, Z)

    x = np.random.default_rng(0).integers(0, 256, (4, 6)).astype(np.uint8)
    y, z = np.zeros(4, np.uint8), np.zeros(4, np.uint8)
    call(build(main), {}, x, y, z)
    np.testing.assert_array_equal(y, combine.reduce(x, axis=1))
    np.testing.assert_array_equal(z, combine(y, 0b10101))


def test_sum_of_magnitudes():
    @T.prim_func
    def main(X: T.Tensor((4, 6), "int8"), Y: T.Tensor((6,), "int32")):
        with T.Kernel(1):
            x, y = T.alloc_fragment((4, 6), "int8"), T.alloc_fragment((6,), "int32")
            T.copy(X, x)
            T.reduce_abssum(x, y, dim=0)
            T.copy(y, Y)

    x = np.random.default_rng(0).integers(-128, 128, (4, 6)).astype(np.int8)
    y = np.zeros(6, np.int32)
    call(build(main), {}, x, y)
    np.testing.assert_array_equal(y, np.abs(x.astype(np.int32)).sum(0))
