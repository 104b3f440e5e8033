"""Quotients and remainders of operands that may be negative and of some that cannot: by 0 they are 0, that of
the lowest number by -1 wraps around, and nothing is tested that cannot be. The interpreter refuses 0."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.targets import parse_target

NUMBERS = {
    "int32": (-(2**31), -7, -1, 0, 1, 7, 2**31 - 1),
    "uint8": (0, 1, 7, 255),
}


def divisions(left, right, count):
    @T.prim_func
    def main(A: T.Tensor((count,), left), B: T.Tensor((count,), right), C: T.Tensor((4, count), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(count):
                a, b = T.cast(A[i], "int32"), T.cast(B[i], "int32")
                C[0, i] = a // b
                C[1, i] = a % b
                C[2, i] = T.truncdiv(a, b)
                C[3, i] = T.truncmod(a, b)

    return main


def meant(a, b):
    """What the four are of two integers."""
    if b == 0:
        return (0, 0, 0, 0)
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    wrapped = [(value + 2**31) % 2**32 - 2**31 for value in (a // b, quotient)]
    return (wrapped[0], a % b, wrapped[1], a - quotient * b)


@pytest.mark.parametrize(("left", "right"), list(itertools.product(NUMBERS, NUMBERS)))
def test_no_operands_trap(left, right):
    pairs = list(itertools.product(NUMBERS[left], NUMBERS[right]))
    a, b = (np.array(side, kind) for side, kind in zip(zip(*pairs, strict=True), (left, right), strict=True))
    expected = np.array([meant(*pair) for pair in pairs], "int32").T
    agree(divisions(left, right, len(pairs)), a, b, expected=expected, interpreted=False)


@T.prim_func
def grouped(
    A: T.Tensor((T.dynamic("H"), 8), "float32"),
    K: T.Tensor((T.dynamic("Hkv"), 8), "float32"),
    C: T.Tensor((T.dynamic("H"), 8), "float32"),
):
    with T.Kernel(A.shape[0], threads=32) as h:
        for i in T.Parallel(8):
            C[h, i] = K[h // (A.shape[0] // K.shape[0]), i]


@pytest.mark.parametrize("target", ["x86-64-v3", "sm_80"])
def test_quotients_of_what_counts_are_tested_for_0_alone(target):
    made = to_tir(lower(elaborated(grouped, (), {}, {}, {}), parse_target(target)), parse_target(target))
    text = str(made.launches[0].func)
    assert "== 0" in text
    assert "-1" not in text


@pytest.mark.parametrize(
    ("source", "dtype"),
    [("uint8", "int8"), ("uint32", "int16"), ("uint32", "int32"), ("uint64", "int32"), ("uint64", "int64")],
)
def test_casts_that_cut_numbers_may_be_negative(source, dtype):
    @T.prim_func
    def main(A: T.Tensor((32,), source), B: T.Tensor((4, 32), "int64")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                a = T.cast(A[i], dtype)
                B[0, i] = a // T.cast(7, dtype)
                B[1, i] = a % T.cast(7, dtype)
                B[2, i] = T.cast(i * 8, "int8") // T.int8(3)
                B[3, i] = T.if_then_else(a >= T.cast(0, dtype), 1, 2)

    a = np.random.default_rng(0).integers(0, np.iinfo(source).max, 32, source)
    cut, places = a.astype(dtype).astype(np.int64), (np.arange(32) * 8).astype(np.int8)
    agree(main, a, expected=[np.stack([cut // 7, cut % 7, places // 3, np.where(cut >= 0, 1, 2)])])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint32"])
def test_typed_numbers_wrap_around_where_they_are_stored(dtype):
    @T.prim_func
    def main(A: T.Tensor((3, 32), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                A[0, i] = T.int32(-3)
                A[1, i] = T.cast(5_000_000_000, "int64")
                A[2, i] = T.truncdiv(T.int32(-123456789), 16) - 1

    wanted = np.array([-3, 5_000_000_000, -7716050], np.int64).astype(dtype)
    agree(main, expected=np.repeat(wanted, 32).reshape(3, 32))


def test_powers_of_two_whose_exponent_two_loops_tell_are_shifts():
    @T.prim_func
    def kernel(X: T.Tensor((256,), "float32"), Y: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((256,), "float32")
            T.copy(X, s)
            for p in T.serial(8):
                for q in T.serial(p + 1):
                    for t in T.Parallel(128):
                        d = 1 << (p - q)
                        i = t // d * 2 * d + t % d
                        a = s[i]
                        b = s[i + d]
                        up = ((i >> (p + 1)) & 1) == 0
                        s[i] = T.if_then_else((a > b) == up, b, a)
                        s[i + d] = T.if_then_else((a > b) == up, a, b)
            T.copy(s, Y)

    x = np.random.default_rng(4).standard_normal(256).astype(np.float32)
    agree(kernel, x, dims={}, expected=np.sort(x))
    chip = parse_target("sm_80")
    text = str(to_tir(lower(elaborated(kernel, (x,), {}, {}, {}), chip), chip).launches[0].func)
    assert "t >> p - q" in text
    assert "t & d - 1" in text


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_numbers_over_a_typed_zero_of_floats_are_infinite_or_none(dtype):
    @T.prim_func
    def main(A: T.Tensor((8,), dtype), B: T.Tensor((3, 8), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                B[0, i] = A[i] / T.float32(0.0)
                B[1, i] = A[i] / T.float32(-0.0)
                B[2, i] = T.float32(1.0) / T.float32(0.0)

    a = np.array([0, 1, -1, 3, -3, 0, 7, -7], dtype)
    with np.errstate(all="ignore"):
        wanted = np.stack([a.astype(np.float32) / np.float32(zero) for zero in (0.0, -0.0)])
    agree(main, a, expected=np.concatenate([wanted, np.full((1, 8), np.inf, np.float32)]))


def test_an_integer_over_a_typed_zero_is_told_what_is_wrong():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                A[i] = A[i] // T.int32(0)

    with pytest.raises(ValueError, match="it divides by zero"):
        elaborated(main, (), None, {}, {})
