"""Conditions on integers whose range goes to an end of their type: what is read, bounded on one side."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree

import tilec.language as T


def test_what_is_read_may_be_less_than_its_bound():
    @T.prim_func
    def main(X: T.Tensor((64,), "int32"), Y: T.Tensor((64,), "int32"), Z: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            first = T.min(X[0], 5)
            for i in T.Parallel(64):
                own = T.min(X[i], 5)
                Y[i] = 1 if own > 1 else 0
                Z[i] = 0
            if first > 1:
                for i in T.Parallel(64):
                    Z[i] = 1

    given = np.resize(np.array([0, 3, -9, 1], np.int32), 64)
    agree(main, given, expected=[(given > 1).astype(np.int32), np.zeros(64, np.int32)])


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8"])
def test_numbers_of_few_bits_have_their_whole_range(dtype):
    """Ranges of more numbers than their type counts, and those that end with it."""

    @T.prim_func
    def main(X: T.Tensor((64,), dtype), Y: T.Tensor((64,), "int32"), Z: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                least = T.min(X[i], T.Cast(dtype, 5))
                most = T.max(X[i], T.Cast(dtype, 3))
                Y[i] = 1 if least > 1 else 0
                if most > 126:
                    Z[i] = 1
                else:
                    Z[i] = 0

    info = np.iinfo(dtype)
    given = np.resize(np.array([0, 1, 2, 5, 6, 126, info.max, info.min], dtype), 64)
    agree(main, given, expected=[(given > 1).astype(np.int32), (given > 126).astype(np.int32)])


def test_no_unsigned_number_is_below_zero():
    @T.prim_func
    def main(X: T.Tensor((64,), "uint32"), Y: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                own = X[i] >> T.uint32(2)
                if own < T.uint32(0):
                    Y[i] = 1
                else:
                    Y[i] = 2
                if X[i] >= T.uint32(0):
                    Y[i] += 4
                else:
                    Y[i] += 8

    agree(main, np.arange(64, dtype=np.uint32), np.zeros(64, np.int32), expected=np.full(64, 6, np.int32))


_ENDS = (-(2**31), -(2**31) + 5, -1431655765, -3, -1, 0, 2, 715827883, 2**30, 2**31 - 8, 2**31 - 1)


def _conditions(v, w):
    """What holds of numbers that wrap around; both of one kind, of NumPy or of the language."""
    return [v * 3 + 7 > 2, v + 1 > v, v - w < 0, v * 2 // 2 == v, (v + 5) % 4 == 1, (v * 6) % 3 == 0,
            (v + w) >> 1 == v, v * 5 >= w]  # fmt: skip


def test_sums_of_elements_wrap_around_in_conditions():
    """No simplifier and no compiler takes them for whole numbers, in front of a condition or behind one."""

    @T.prim_func
    def main(X: T.Tensor((64,), "int32"), Z: T.Tensor((64,), "int32"), Y: T.Tensor((10, 64), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                v, w = X[i], Z[i]
                for place, cond in enumerate(_conditions(v, w)):
                    Y[place, i] = 0
                    if cond:
                        Y[place, i] = 1
                Y[8, i] = 0
                Y[9, i] = 0
                if v > 0 and v + v > 0:
                    Y[8, i] = 1
                if v > w:
                    Y[9, i] = T.if_then_else(v - w > 0, 1, 2)

    v = np.resize(np.array(_ENDS, np.int32), 64)
    w = np.roll(v, 5)
    with np.errstate(over="ignore"):
        conditions = _conditions(v, w)
        nested = [(v > 0) & (v + v > 0), np.where(v > w, np.where(v - w > 0, 1, 2), 0)]
    agree(main, v, w, expected=np.stack([*conditions, *nested]).astype(np.int32))


@pytest.mark.parametrize(("n", "m"), [(2**31 - 1, -5), (-(2**31), 7), (2**30, 2**30)])
def test_sums_of_arguments_wrap_around_in_conditions(n, m):
    @T.prim_func
    def main(n: T.int32, m: T.int32, Y: T.Tensor((9,), "int32")):
        with T.Kernel(1, threads=32):
            T.clear(Y)
            for place, cond in enumerate(_conditions(n, m)):
                if cond:
                    Y[place] = 1
            if n > 0 and n + n > 0:
                Y[8] = 1

    with np.errstate(over="ignore"):
        left, right = np.int32(n), np.int32(m)
        conditions = [*_conditions(left, right), left > 0 and left + left > 0]
    agree(main, n, m, expected=np.array(conditions, np.int32))


def test_conditions_on_numbers_beyond_their_type():
    """An analyzer that moves 65535 to the other side has no such number."""

    @T.prim_func
    def main(X: T.Tensor((64,), "uint16"), Y: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                least = (2147483647 + X[i]) % 3
                Y[i] = T.if_then_else(X[i] - 2147483647 < least - 65530, 1, 0)

    given = np.resize(np.array([0, 1, 2, 21845, 65535], np.uint16), 64)
    with np.errstate(over="ignore"):
        wide = given.astype(np.int32)
        expected = wide - np.int32(2**31 - 1) < (np.int32(2**31 - 1) + wide) % 3 - 65530
    agree(main, given, expected=expected.astype(np.int32))


def test_names_of_floats_and_flags_in_conditions_on_indices():
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), B: T.Tensor((64,), "bool"), R: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                v, flag = X[i], B[i]
                if X[63 - i] < v or (B[i // 2] == flag and i + 1 < 9):
                    R[i] = 1
                else:
                    R[i] = 0

    given, flags = np.resize(np.array([3, 1, 2], np.float32), 64), np.arange(64) % 3 == 0
    places = np.arange(64)
    expected = (given[::-1] < given) | ((flags[places // 2] == flags) & (places < 8))
    agree(main, given, flags, expected=expected.astype(np.int32))


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64"])
def test_unsigned_sums_with_literals_in_choices_and_branches(dtype):
    """TVM moves literals to the other side of a condition, where an unsigned 0 - 5 is none of its numbers."""

    def test(x, z):
        return x + T.cast(5, dtype) <= z

    @T.prim_func
    def main(X: T.Tensor((64,), dtype), S: T.Tensor((64,), "int16"), Y: T.Tensor((3, 64), "uint32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                z = T.cast(S[i], dtype)
                Y[0, i] = T.if_then_else(test(X[i], z), T.min(T.uint32(3), X[i]), X[i] * X[i])
                Y[1, i] = T.if_then_else(
                    T.if_then_else(i >= 0, T.cast(0, dtype), X[i]) - T.cast(8, dtype) < z, 1, 2
                )
                Y[2, i] = 0
                if test(X[63 - i], T.cast(S[i], dtype)):
                    Y[2, i] = 1

    most = np.iinfo(dtype).max
    x = np.resize(np.array([0, 1, most, most - 4, most - 5, 9], dtype), 64)
    s = np.resize(np.array([7, 5, -1, 30000, 0], np.int16), 64)
    with np.errstate(over="ignore"):
        z, five, words = s.astype(dtype), np.array(5, dtype), x.astype(np.uint32)
        first = np.where(x + five <= z, np.minimum(words, 3), (x * x).astype(np.uint32))
        second = np.where(np.array(most - 7, dtype) < z, 1, 2)
        third = x[::-1] + five <= z
    agree(main, x, s, expected=np.stack([first, second, third]).astype(np.uint32))


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64"])
def test_unsigned_names_that_passes_find_to_be_constants(dtype):
    @T.prim_func
    def main(X: T.Tensor((64,), dtype), Y: T.Tensor((2, 64), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                least = T.if_then_else(i >= 0, T.cast(0, dtype), X[i])
                Y[0, i] = T.if_then_else(least - T.cast(8, dtype) < X[i], 1, 2)
                Y[1, i] = T.if_then_else((least - T.cast(3, dtype)) * T.cast(9, dtype) > X[i], 1, 2)

    most = int(np.iinfo(dtype).max)
    x = np.resize(np.array([0, most, most - 7, most - 6, most - 27, most - 26], dtype), 64)
    rows = [np.array(most - 7, dtype) < x, np.array(most - 26, dtype) > x]
    agree(main, x, expected=np.where(np.stack(rows), 1, 2).astype(np.int32))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint64"])
def test_names_below_zero_that_passes_find_to_be_constants(dtype):
    @T.prim_func
    def main(Y: T.Tensor((16, 8), dtype)):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(16, 8):
                least = T.min(i, -4)
                Y[i, j] = least * 2 - least % 7

    agree(main, expected=np.full((16, 8), -11).astype(dtype))


def test_typed_constants_wrap_around():
    @T.prim_func
    def main(X: T.Tensor((64,), "int8"), Y: T.Tensor((5, 64), "int64")):
        with T.Kernel(1, threads=64):
            least = T.uint16(0) - T.uint16(8)
            negative = -T.uint16(8)
            for i in T.Parallel(64):
                Y[0, i] = T.cast(T.uint64(1 << 30), "int8") + X[i]
                Y[1, i] = least + negative
                Y[2, i] = T.int32(3 << 29) << T.int32(2)
                Y[3, i] = T.if_then_else(T.cast(T.uint64(300), "uint8") > T.cast(X[i], "int32"), 1, 2)
                Y[4, i] = T.int8(100) + T.int8(100) if X[i] > 0 else T.abs(T.int8(-128))

    x = np.arange(-32, 32, dtype=np.int8)
    rows = [x, 65520, -(2**31), np.where(x < 44, 1, 2), np.where(x > 0, -56, -128)]
    agree(main, x, expected=np.stack([np.broadcast_to(row, 64) for row in rows]).astype(np.int64))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_sums_that_all_threads_have_alike_wrap_around(dtype):
    """Of variables, elements at one place and both with what differs from thread to thread."""

    @T.prim_func
    def main(X: T.Tensor((40,), dtype), Y: T.Tensor((40,), dtype), Z: T.Tensor((40,), dtype)):
        with T.Kernel(1, threads=32):
            v = T.alloc_var(dtype)
            v = X[0]
            v = v * v + X[1]
            for i in T.Parallel(40):
                Y[i] = v * v - X[2] * X[3]
                Z[i] = X[i] + (v + X[2])

    x = np.random.default_rng(3).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 40, dtype)
    first = x[:1] * x[:1] + x[1]
    agree(main, x, expected=[np.broadcast_to(first * first - x[2:3] * x[3], 40), x + (first + x[2])])


def test_constants_and_arguments_of_the_upper_half_of_uint64():
    @T.prim_func
    def main(h: T.uint64, g: T.uint64, Y: T.Tensor((4, 8), "uint64")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                Y[0, i] = T.uint64(1 << 63) | T.uint64((1 << 64) - 3)
                Y[1, i] = h * h + g
                Y[2, i] = T.if_then_else(h > g, h ^ g, T.uint64(1))
                Y[3, i] = T.min(h, g) + T.cast(i, "uint64")

    h, g = 2**64 - 5, 2**63 + 12345
    rows = [[2**64 - 3], [(h * h + g) % 2**64], [h ^ g], [g + i for i in range(8)]]
    wanted = np.stack([np.broadcast_to(np.array(row, np.uint64), 8) for row in rows])
    agree(main, h, g, expected=wanted, targets=("cpu", "sm_80"))


@pytest.mark.parametrize("dtype", ["int32", "int16"])
def test_shifts_of_numbers_that_passes_find_to_be_constants(dtype):
    low, high = (int(end) for end in (np.iinfo(dtype).min, np.iinfo(dtype).max))

    @T.prim_func
    def main(h: T.int64, Y: T.Tensor((2, 40), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(40):
                Y[0, i] = T.min(T.Cast(dtype, h), T.Cast(dtype, low)) << T.Cast(dtype, 3)
                Y[1, i] = T.max(T.Cast(dtype, h), T.Cast(dtype, high)) << T.Cast(dtype, 3)

    agree(main, 5, expected=np.repeat(np.array([[0], [-8]], dtype), 40, axis=1))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_lanes_that_share_a_sum_wrap_around(dtype):
    """Parts of a sum that no line of the kernel has: LLVM had been told that they stay within their type, and
    31 times 2^30 had been 0 by vectors of 16 lanes."""
    step = 2 ** (int(dtype.removeprefix("int")) - 2)

    @T.prim_func
    def main(
        X: T.Tensor((32,), dtype),
        C: T.Tensor((3,), dtype),
        S: T.Tensor((1,), dtype),
        R: T.Tensor((32,), dtype),
    ):
        with T.Kernel(1, threads=96):
            counts, row = T.alloc_shared((3,), dtype), T.alloc_shared((32,), dtype)
            total = T.alloc_fragment((1,), dtype)
            T.clear(counts)
            T.copy(X, row)
            for i, j in T.Parallel(3, 32):
                if row[j] >= 1:
                    T.atomic_add(counts[i], T.Cast(dtype, step))
            T.copy(counts, C)
            T.reduce_sum(row, total)
            S[0] = total[0]
            T.cumsum(row)
            T.copy(row, R)

    x = np.where(np.arange(32) < 31, step, 0).astype(dtype)
    sums = np.cumsum(x, dtype=dtype)
    agree(main, x, expected=[np.full(3, sums[-1]), sums[-1:], sums])


def test_negative_typed_constants_beside_unsigned_integers_wrap_around():
    """As signed values do that are no constants, and as an absolute value of a constant is one."""

    @T.prim_func
    def main(X: T.Tensor((8,), "uint16"), S: T.Tensor((8,), "int16"), Y: T.Tensor((6, 8), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                Y[0, i] = T.cast(X[i] & T.int16(-32768), "int32")
                Y[1, i] = T.cast(X[i] & S[i], "int32")
                Y[2, i] = T.cast(X[i] < T.int16(-1), "int32")
                Y[3, i] = T.cast(X[i] + T.int8(-3), "int32")
                Y[4, i] = T.cast(T.int16(-5) % X[i], "int32")
                Y[5, i] = T.cast(T.abs(T.abs(T.int64(-3))), "int32")

    x = np.array([1, 2, 40000, 65535, 32768, 7, 9, 3], np.uint16)
    s = np.repeat(np.array([-32768, -1], np.int16), 4)
    few = np.broadcast_to(np.int32(3), 8)
    rows = [x & 32768, x & s.view(np.uint16), x < 65535, x + np.uint16(65533), np.uint16(65531) % x, few]
    agree(main, x, s, expected=np.stack([row.astype(np.int32) for row in rows]))


def test_numbers_beyond_a_small_type_are_no_literals_of_it():
    """What the first iteration casts is 16384, which int8 does not have."""

    @T.prim_func
    def main(n: T.int32, Y: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                if T.cast(n, "uint16") != T.uint16(0):
                    top = T.cast(T.int16(16384) - T.cast(i, "int32"), "uint8")
                    Y[i] = T.cast(T.truncdiv(top, (T.cast(n, "uint8") & T.uint8(15)) + T.uint8(1)), "int32")
                else:
                    Y[i] = T.cast(T.cast(16384 - i, "int8"), "int32")

    top = (16384 - np.arange(8)).astype(np.uint8)
    agree(main, 3, expected=(top // 4).astype(np.int32))
    agree(main, 65536, expected=top.astype(np.int8).astype(np.int32))


def test_bits_that_are_set_are_counted_in_the_type_of_the_number():
    @T.prim_func
    def kernel(A: T.Tensor((32,), "uint32"), C: T.Tensor((32,), "int64")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                C[i] = T.popcount(A[i]) * A[31 - i] % 3

    a = np.random.default_rng(0).integers(0, 2**32, 32).astype(np.uint32)
    counts = np.array([bin(value).count("1") for value in a], np.uint32)
    agree(kernel, a, expected=counts * a[::-1] % 3, targets=("cpu", "sm_80"))


def test_indices_that_are_below_zero_once_names_are_written_out():
    @T.prim_func
    def kernel(A: T.Tensor((4, 1, 16), "uint16"), C: T.Tensor((144, 2), "int64")):
        with T.Kernel(1, threads=96):
            f, s = T.alloc_fragment((4, 1, 16), "uint16"), T.alloc_shared((144, 2), "int64")
            T.copy(A, f)
            T.fill(s, 3)
            for i, j in T.Parallel(144, 2):
                s[i, j] = s[i, j] - f[j, 0 - j, j]
            T.copy(s, C)

    a = np.arange(64, dtype=np.uint16).reshape(4, 1, 16) + 1
    agree(kernel, a, expected=np.tile([2, 3], (144, 1)), targets=("cpu", "sm_80"))


@pytest.mark.parametrize("in_threads", [False, True])
def test_words_that_an_index_shifts_stay_in_their_type(in_threads):
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8, 8), "int32"), C: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=8):
            if in_threads:
                tx = T.get_thread_binding()
                for j in T.serial(8):
                    B[tx, j] = (A[tx] << (28 - 4 * j)) >> 28
                    C[tx, j] = A[tx] << j
            else:
                for i, j in T.Parallel(8, 8):
                    word = A[i]
                    B[i, j] = (word << (28 - 4 * j)) >> 28
                    C[i, j] = word << j

    a = np.random.default_rng(0).integers(-(2**31), 2**31, 8).astype("int32")
    places = np.arange(8, dtype="int32")
    nibbles, moved = a[:, None] << (28 - 4 * places) >> 28, a[:, None] << places
    agree(main, a, expected=[nibbles, moved], targets=("cpu", "sm_80", "gfx942"))
