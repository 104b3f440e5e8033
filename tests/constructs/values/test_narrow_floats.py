"""Floats of 16 and 8 bits: one rounding from float64, and steps of their own."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree
from breadth import parametrized

import tilec.language as T
from tilec.ir.interp.values import numpy_dtype

NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def every(dtype: str) -> np.ndarray:
    """All values of a type."""
    kind = numpy_dtype(dtype)
    bits = np.arange(1 << 8 * kind.itemsize, dtype=f"u{kind.itemsize}")
    return bits.view(kind)


def near_ties(dtype: str, count: int = 480) -> np.ndarray:
    """float64 numbers around the middle of two neighbours, too close to it for float32, and the ends."""
    found = every(dtype).astype(np.float64)
    found = np.unique(found[np.isfinite(found)])
    found = np.random.default_rng(0).choice(found, min(count // 5, len(found)), replace=False)
    found = np.sort(found)
    middle = (found[1:] + found[:-1]) / 2
    parts = [found, middle, middle * (1 + 2.0**-40), middle * (1 - 2.0**-40), -middle * (1 + 2.0**-50)]
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-320, -1e-46, 3e38, 1e300, -1e39]
    return np.concatenate([*parts, ends, found[:1] * (1 + 1e-9), found[-1:] * (1 + 1e-9)])


def nearest(values: np.ndarray, dtype: str) -> np.ndarray:
    """Rounded once, ties to even; what float8 has no finite value for is its largest one."""
    kind = numpy_dtype(dtype)
    found = every(dtype)
    finite = found[np.isfinite(found.astype(np.float64)) & ~np.signbit(found.astype(np.float64))]
    exact = finite.astype(np.float64)
    size = np.abs(values)
    at = np.clip(np.searchsorted(exact, size, side="right") - 1, 0, len(exact) - 1)
    low = exact[at]
    top = exact[-1] + (exact[-1] - exact[-2])
    high = np.where(at + 1 < len(exact), exact[np.minimum(at + 1, len(exact) - 1)], top)
    up = (size - low > high - size) | ((size - low == high - size) & (at % 2 == 1))
    place = at + up
    limit = np.inf if kind.itemsize == 2 else exact[-1]
    result = np.where(place < len(exact), exact[np.minimum(place, len(exact) - 1)], limit)
    result = np.where(np.isinf(size), limit, result)
    return np.where(np.isnan(values), np.nan, np.copysign(result, values)).astype(np.float32).astype(kind)


@pytest.mark.parametrize("dtype", NARROW)
def test_float64_is_rounded_once(dtype: str) -> None:
    x = near_ties(dtype)
    count = len(x)

    @T.prim_func
    def main(
        A: T.Tensor((count,), "float64"), B: T.Tensor((count,), dtype), C: T.Tensor((count,), "float32")
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(count):
                B[i] = A[i]
            for i in T.Parallel(count):
                C[i] = T.cast(T.cast(A[i], dtype), "float32")

    wanted = nearest(x, dtype)
    agree(main, x, expected=[wanted, wanted.astype(np.float32)], rtol=0, atol=0, targets=("cpu", "sm_80"))


@pytest.mark.parametrize("dtype", NARROW)
def test_constants_are_rounded_once(dtype: str) -> None:
    """1 + 2^-m + 2^-40 lies above the middle of two values; through float32 it would lie on it."""
    digits = {"float16": 11, "bfloat16": 8, "float8_e4m3fn": 4, "float8_e5m2": 3}[dtype]
    number = 1 + 2.0**-digits + 2.0**-40

    @T.prim_func
    def main(B: T.Tensor((3,), dtype), C: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=32):
            B[0] = number
            B[1] = T.float64(number)
            B[2] = T.cast(number, dtype)
            C[0] = T.cast(T.cast(number, dtype), "float32")

    wanted = nearest(np.array([number]), dtype)
    assert float(wanted[0]) > 1
    agree(main, expected=[np.repeat(wanted, 3), wanted.astype(np.float32)], rtol=0, atol=0)


@parametrized("dtype", NARROW, fast=[dtype for dtype in NARROW if dtype != "float8_e5m2"])
def test_the_next_number_is_one_of_the_type(dtype: str) -> None:
    values = every(dtype)
    if len(values) > 256:
        values = np.concatenate([values[::263], values[-3:], values[:3]])
    count = len(values)

    @T.prim_func
    def main(A: T.Tensor((count,), dtype), B: T.Tensor((count,), dtype), C: T.Tensor((count, 2), dtype)):
        with T.Kernel(1, threads=256):
            for i in T.Parallel(count):
                C[i, 0] = T.nextafter(A[i], B[i])
                C[i, 1] = T.nextafter(A[i], A[i])

    other = np.random.default_rng(0).permutation(values)
    x, y = values.astype(np.float64), other.astype(np.float64)
    wanted = np.stack([stepped(values, x, y), values], 1)
    agree(main, values, other, expected=wanted, rtol=0, atol=0, targets=("cpu", "sm_80"))


def stepped(values: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The neighbour of x on the side of y, from all numbers of the type in their order."""
    kind = values.dtype
    whole = np.arange(1 << 8 * kind.itemsize, dtype=f"u{kind.itemsize}").view(kind).astype(np.float64)
    order = np.unique(whole[~np.isnan(whole)])
    at = np.searchsorted(order, x)
    moved = order[np.clip(at + np.where(y > x, 1, -1), 0, len(order) - 1)]
    found = np.where(x == y, y, moved)
    found = np.where((found == 0) & (x != y), np.copysign(0.0, x), found)
    return np.where(np.isnan(x) | np.isnan(y), np.nan, found).astype(np.float32).astype(kind)


def test_a_zero_of_one_type_is_rounded_to_another():
    @T.prim_func
    def main(A: T.Tensor((32,), "bfloat16")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                A[i] = T.cast(T.cast(0, "int8"), "float16")

    agree(main, expected=np.zeros(32, numpy_dtype("bfloat16")), targets=("cpu", "sm_80"))
