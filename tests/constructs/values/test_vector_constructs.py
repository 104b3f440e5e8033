"""Vector dtypes and values, packed pairs, wide reads and writes, dot products of bytes, reinterpretation."""

from __future__ import annotations

import re
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from agree import agree, build, elaborated

import tilec.language as T
from tilec.errors import SourceError
from tilec.ir.interp.values import numpy_dtype


def built(body, count=8, kinds=("float32", "float32")):
    """A kernel that calls ``body(A, C, i)`` in a loop over ``count``."""

    @T.prim_func
    def main(A: T.Tensor((4 * count,), kinds[0]), C: T.Tensor((4 * count,), kinds[1])):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(count):
                body(A, C, i)

    return main


def test_ramps_and_broadcasts_index_and_fill_lanes():
    @T.prim_func
    def main(A: T.Tensor((32,), "float32"), C: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                v = A[T.Ramp(i * 4, 1, 4)]
                w = v * 2.0 + T.Broadcast(T.float32(1), 4)
                C[T.Ramp(i * 4 + 3, -1, 4)] = T.max(w, v)

    a = np.linspace(-4, 4, 32, dtype=np.float32)
    agree(main, a, expected=np.maximum(2 * a + 1, a).reshape(8, 4)[:, ::-1].reshape(-1))


def test_lanes_are_shuffled_and_extracted():
    @T.prim_func
    def main(A: T.Tensor((32,), "int32"), C: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                low, high = A[T.Ramp(i * 4, 1, 2)], A[T.Ramp(i * 4 + 2, 1, 2)]
                C[T.Ramp(i * 4, 1, 2)] = T.Shuffle([low, high], [3, 0])
                C[i * 4 + 2] = T.extract_lane(high, 0)
                C[i * 4 + 3] = T.Shuffle([low, high], [1])

    a = np.arange(32, dtype=np.int32) ** 2
    agree(main, a, expected=a.reshape(8, 4)[:, [3, 0, 2, 1]].reshape(-1))


def test_lanes_are_all_read_before_the_first_is_stored():
    @T.prim_func
    def main(A: T.Tensor((32,), "int32"), C: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((32,), "int32")
            T.copy(A, s)
            s[T.Ramp(0, 1, 4)] = s[T.Ramp(3, -1, 4)]
            s[5:9] = s[4:8] + 1
            s[13:17] += s[12:16]
            s[T.Ramp(24, 1, 4)], s[T.Ramp(28, 1, 4)] = s[T.Ramp(28, 1, 4)], s[T.Ramp(24, 1, 4)]
            s[18:20], s[20:22] = s[20:22], s[18:20]
            T.copy(s, C)

    a = np.arange(32, dtype=np.int32) ** 2
    c = a.copy()
    c[18:20], c[20:22] = a[20:22], a[18:20]
    c[:4], c[5:9], c[13:17], c[24:28], c[28:] = a[3::-1], a[4:8] + 1, a[13:17] + a[12:16], a[28:], a[24:28]
    agree(main, a, expected=c)


def test_functions_take_slices_as_vectors():
    @T.prim_func
    def main(A: T.Tensor((32,), "float32"), C: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(2):
                b = A[i * 16 : i * 16 + 4]
                C[i * 16 : i * 16 + 4] = -b
                C[i * 16 + 4 : i * 16 + 8] = T.abs(b) + T.cast(b, "int32x4")
                C[i * 16 + 8 : i * 16 + 10] = T.Shuffle([b], [3, 0])
                C[i * 16 + 10] = T.extract_lane(b, 1)
                C[i * 16 + 11] = T.reinterpret(T.reinterpret(b, "uint32x4")[2], "float32")
                C[T.Ramp(i * 16 + 12, 1, 4)] = b if A[i * 16] > 0 else A[0:4]

    a = np.linspace(-4, 4, 32, dtype=np.float32)
    c = [
        np.concatenate([-b, np.abs(b) + np.trunc(b), b[[3, 0, 1, 2]], b if b[0] > 0 else a[:4]])
        for b in (a[:4], a[16:20])
    ]
    agree(main, a, expected=np.concatenate(c))


def test_comparisons_of_vectors_choose_lane_by_lane():
    @T.prim_func
    def main(A: T.Tensor((32,), "float32"), C: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(2):
                b = A[i * 16 : i * 16 + 4] + 0
                C[i * 16 : i * 16 + 4] = T.if_then_else(A[i * 16 : i * 16 + 4] > 0, b, 1)
                C[i * 16 + 4 : i * 16 + 8] = b if b <= A[4:8] else -b
                C[i * 16 + 8 : i * 16 + 16] = A[0:8]

    a = np.linspace(-4, 3, 32, dtype=np.float32)
    c = [
        np.concatenate([np.where(b > 0, b, 1), np.where(b <= a[4:8], b, -b), a[:8]])
        for b in (a[:4], a[16:20])
    ]
    agree(main, a, expected=np.concatenate(c))


def test_slices_are_indexed_from_where_they_start():
    @T.prim_func
    def main(A: T.Tensor((4, 6, 32), "float32"), C: T.Tensor((4, 6, 32), "float32")):
        with T.Kernel(4, threads=32) as block:
            tile = T.alloc_shared((6, 32), "float32")
            T.copy(A[block, 0:6, 0:32], tile)
            rows, whole = tile[2:6, 0:32], C[block, ...]
            part, last = whole[0:3, 8:24], rows[-1, 0:32]
            T.copy(tile, whole)
            for i, j in T.Parallel(3, 16):
                part[i, j] = rows[i, j] + last[j + 16]
            part[0, -1] = rows[0, 0]
            whole[5, 4:8] = last[0:4] * 2.0
            for j in T.Parallel(32):
                whole[4, j] += rows[1:3, 0:32][1, 31 - j]

    a = np.random.default_rng(3).standard_normal((4, 6, 32)).astype(np.float32)
    c = a.copy()
    c[:, 0:3, 8:24] = a[:, 2:5, 0:16] + a[:, 5:6, 16:32]
    c[:, 0, 23] = a[:, 2, 0]
    c[:, 5, 4:8] = 2 * a[:, 5, 0:4]
    c[:, 4] += a[:, 4, ::-1]
    agree(main, a, np.zeros_like(a), expected=c)


def test_slices_of_vectors_are_indexed_by_them():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32x4"), C: T.Tensor((8,), "float32x4")):
        with T.Kernel(1, threads=32):
            source, target = A[2:8], C[0:6]
            T.copy(A, C)
            for i in T.Parallel(5):
                target[i] = source[i + 1] * T.float32x4(2)

    a = np.random.default_rng(3).standard_normal((8, 4)).astype(np.float32)
    agree(main, a, expected=np.concatenate([2 * a[3:8], a[5:]]))


@pytest.mark.parametrize(
    ("read", "told"),
    [
        (lambda row: row[4], "index 4 is out of range for axis 0 of a slice of A"),
        (lambda row: row[0, 1], "a slice of A has 1 axis, got 2 indices"),
        (lambda row: row[2:6], "a slice along axis 0 ends 2 behind a slice of A"),
        (list, "a slice of A cannot be iterated"),
    ],
)
def test_slices_end_where_they_were_said_to(read: Callable, told: str):
    def main(A: T.Tensor((4, 32), "float32")):
        with T.Kernel(1, threads=32):
            A[0, 0] = read(A[1, 8:12])

    with pytest.raises(SourceError, match=re.escape(told)):
        build(T.prim_func(main))


def test_vector_dtypes_pack_cast_and_broadcast():
    @T.prim_func
    def main(A: T.Tensor((32,), "float32"), C: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                pair = T.bfloat16x2(A[4 * i], A[4 * i + 1])
                half = T.float16x2(A[T.Ramp(4 * i + 2, 1, 2)])
                C[T.Ramp(4 * i, 1, 2)] = pair.astype("float32") + T.float32x2(1)
                C[T.Ramp(4 * i + 2, 1, 2)] = T.cast(half * half, "float32x2")

    a = np.linspace(0.1, 3, 32, dtype=np.float32)
    rows = a.reshape(8, 4)
    left = rows[:, :2].astype(ml_dtypes.bfloat16).astype(np.float32) + 1
    right = rows[:, 2:].astype(np.float16) ** 2
    agree(main, a, expected=np.concatenate([left, right], axis=1).reshape(-1), rtol=2e-3)


def test_buffers_of_vectors():
    """Parameters, tiles and a thread's own arrays have vectors for elements; copies move whole ones."""

    @T.prim_func
    def main(A: T.Tensor((8,), "float16x4"), C: T.Tensor((8,), "float32x4")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((8,), "float16x4")
            T.copy(A, s)
            own = T.alloc_fragment((8,), "float32x4")
            for i in T.Parallel(8):
                own[i] = s[i] * T.float16x4(2) + s[i]
            T.copy(own, C)

    a = np.arange(32, dtype=np.float16).reshape(8, 4)
    agree(main, a, expected=a.astype(np.float32) * 3)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32"])
def test_packed_pairs(kind):
    def body(A, C, i):
        x, y = A[T.Ramp(4 * i, 1, 2)], A[T.Ramp(4 * i + 2, 1, 2)]
        C[T.Ramp(4 * i, 1, 2)] = T.sub2(T.add2(x, y), T.abs2(T.mul2(x, y)))
        C[T.Ramp(4 * i + 2, 1, 2)] = T.fma2(x, T.max2(x, y), T.min2(x, y))

    a = (np.arange(32) % 7 - 3).astype(getattr(ml_dtypes, kind, kind))
    x, y = a.astype(np.float32).reshape(8, 2, 2).swapaxes(0, 1)
    expected = np.concatenate([x + y - np.abs(x * y), x * np.maximum(x, y) + np.minimum(x, y)], axis=1)
    agree(built(body, kinds=(kind, kind)), a, expected=expected.reshape(-1).astype(a.dtype))


def test_packed_pairs_take_pairs_of_floats_alone():
    with pytest.raises(ValueError, match=r"T\.add2 takes float16x2, bfloat16x2, float32x2, not int32x2"):
        elaborated(
            built(lambda A, C, i: T.add2(A[T.Ramp(i, 1, 2)], 1), kinds=("int32", "int32")), (), None, {}, {}
        )
    with pytest.raises(ValueError, match=r"T\.mul2 .* not float32x4"):
        elaborated(built(lambda A, C, i: T.mul2(A[T.Ramp(i, 1, 4)], 1.0)), (), None, {}, {})


def test_vectors_of_different_lengths_do_not_meet():
    with pytest.raises(TypeError, match=r"operator \+ does not take float32x2 and float32x4"):
        elaborated(built(lambda A, C, i: A[T.Ramp(i, 1, 2)] + A[T.Ramp(i, 1, 4)]), (), None, {}, {})


# ---- wide reads and writes ----


@pytest.mark.parametrize("bits", [32, 64, 128, 256])
def test_wide_reads_and_writes_of_global_memory(bits):
    load, store, count = getattr(T, f"ldg{bits}"), getattr(T, f"stg{bits}"), bits // 16

    @T.prim_func
    def main(A: T.Tensor((4, count), "float16"), C: T.Tensor((4, count), "float16")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                store(C[i, 0], load(A[i, 0], pred=i != 1))

    a = np.arange(1, 4 * count + 1, dtype=np.float16).reshape(4, count)
    agree(main, a, expected=np.where(np.arange(4)[:, None] != 1, a, 0))


def test_wide_reads_and_writes_of_shared_memory():
    @T.prim_func
    def main(A: T.Tensor((32,), "uint8"), C: T.Tensor((8,), "uint32"), D: T.Tensor((32,), "uint8")):
        with T.Kernel(1, threads=32):
            s, t = T.alloc_shared((32,), "uint8"), T.alloc_shared((32,), "uint8")
            T.copy(A, s)
            T.fill(t, 7)
            for i in T.Parallel(8):
                C[i] = T.lds32(s[4 * i])
            for i in T.Parallel(2):
                T.sts128(t[16 * i], T.lds128(s[16 * i]), pred=i == 0)
            T.copy(t, D)

    a = np.arange(32, dtype=np.uint8) * 7
    agree(main, a, expected=[a.view(np.uint32), np.concatenate([a[:16], [7] * 16])])


def test_plain_reads_through_ldg():
    def body(A, C, i):
        C[i] = T.__ldg(A[i]) + T.__ldg(A, i + 8)

    a = np.arange(32, dtype=np.float32)
    agree(built(lambda A, C, i: [body(A, C, i + 8 * k) for k in range(3)]), a)


# ---- dot products of bytes ----


def test_dp4a():
    @T.prim_func
    def main(A: T.Tensor((8, 8), "int8"), B: T.Tensor((8, 8), "int8"), C: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                a, b = T.alloc_local((8,), "int8"), T.alloc_local((8,), "int8")
                total = T.alloc_local((1,), "int32")
                for k in T.serial(8):
                    a[k] = A[i, k]
                    b[k] = B[i, k]
                total[0] = 5
                T.dp4a(a, b, total)
                T.dp4a(a[4], b[4], total[0])
                C[i] = total[0]

    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, (8, 8)).astype(np.int8) for _ in range(2))
    agree(main, a, b, expected=(a.astype(np.int32) * b).sum(axis=1) + 5)


def test_dp4a_takes_bytes_alone():
    with pytest.raises(ValueError, match=r"T\.dp4a of float32 and float32 into float32"):
        elaborated(built(lambda A, C, i: T.dp4a(A[i], A[i], C[i])), (), None, {}, {})


# ---- reinterpretation ----


def test_reinterpretation_keeps_bits_in_both_orders():
    @T.prim_func
    def main(
        A: T.Tensor((8,), "float32"),
        H: T.Tensor((8,), "float16"),
        B: T.Tensor((8,), "uint16"),
        C: T.Tensor((4, 8), "int32"),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                C[0, i] = T.reinterpret(A[i], "int32")
                C[1, i] = T.cast(T.reinterpret("uint16", H[i]), "int32")
                C[2, i] = T.reinterpret(T.cast(T.reinterpret(B[i], "bfloat16"), "float32"), "int32")
                C[3, i] = T.cast(T.reinterpret(T.reinterpret(B[i], "float16"), "int16"), "int32")

    a, h = np.linspace(-3, 3, 8, dtype=np.float32), np.linspace(-2, 2, 8).astype(np.float16)
    b = (np.linspace(-5, 5, 8).astype(ml_dtypes.bfloat16)).view(np.uint16)
    rows = [a.view(np.int32), h.view(np.uint16), b.astype(np.uint32) << 16, b.view(np.int16)]
    agree(
        main,
        a,
        h,
        b,
        expected=np.stack(
            [
                row.astype(np.uint32).view(np.int32) if row.dtype != np.int16 else row.astype(np.int32)
                for row in rows
            ]
        ),
    )


def test_reinterpretation_of_vectors():
    @T.prim_func
    def main(A: T.Tensor((8,), "uint32"), C: T.Tensor((8, 2), "float16"), D: T.Tensor((4,), "uint64")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                C[i, T.Ramp(0, 1, 2)] = T.reinterpret(A[i], "float16x2")
            for i in T.Parallel(4):
                D[i] = T.reinterpret(A[T.Ramp(2 * i, 1, 2)], "uint64")

    h = np.linspace(-2, 2, 16).astype(np.float16)
    agree(main, h.view(np.uint32), expected=[h.reshape(8, 2), h.view(np.uint64)])


@pytest.mark.parametrize(("source", "kind"), [("int32", "float32"), ("uint8", "float8_e4m3fn"), ("bool", "")])
def test_reinterpretation_of_what_lies_outside(source, kind):
    @T.prim_func
    def main(X: T.Tensor((64,), source), Y: T.Tensor((64,), kind or source)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                Y[i] = T.reinterpret(X[i + 40], kind) if kind else X[i + 40]

    x = np.arange(64).astype(source)
    agree(main, x, expected=np.append(x[40:], np.zeros(40, source)).view(numpy_dtype(kind or source)))


def test_reinterpretation_wants_equal_widths():
    with pytest.raises(ValueError, match=r"T\.reinterpret of float32 as uint16"):
        elaborated(built(lambda A, C, i: T.reinterpret(A[i], "uint16")), (), None, {}, {})
