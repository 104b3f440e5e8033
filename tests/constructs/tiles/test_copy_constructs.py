"""T.copy and its kin: extents, memories, casts, hints, fills, transposes, images, places read at run time."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from agree import agree, build
from breadth import diagonal, parametrized

import tilec.language as T
from tilec.errors import SourceValueError

#: Code of both GPU targets is the same where no launch has warp roles.
GENERAL = ("cpu", "sm_80")
ALLOC = {"shared": T.alloc_shared, "fragment": T.alloc_fragment, "local": T.alloc_local}


def numbers(*shape, dtype="float32", seed=0):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    if kind.kind == "b":
        return np.random.default_rng(seed).integers(0, 2, shape).astype(kind)
    return np.random.default_rng(seed).integers(0 if kind.kind == "u" else -20, 21, shape).astype(kind)


def moved(first, second, dtype, other):
    @T.prim_func
    def main(A: T.Tensor((12, 20), dtype), B: T.Tensor((12, 20), other)):
        with T.Kernel(1, threads=64):
            a, b = ALLOC[first]((12, 20), dtype), ALLOC[second]((12, 20), other)
            T.copy(A, a)
            T.copy(a, b)
            T.copy(b, B)

    return main


MEMORIES = ("shared", "fragment", "local")


@parametrized(
    ("first", "second"),
    [(first, second) for first in MEMORIES for second in MEMORIES],
    fast=[*diagonal(MEMORIES, MEMORIES), ("shared", "fragment"), ("fragment", "local"), ("local", "shared")],
)
def test_every_pair_of_memories(first, second):
    a = numbers(12, 20)
    agree(moved(first, second, "float32", "float16"), a, expected=a, targets=GENERAL)


@pytest.mark.parametrize(
    ("dtype", "other"),
    [
        ("float32", "bfloat16"), ("float16", "float32"), ("bfloat16", "float16"), ("float16", "bfloat16"),
        ("int32", "float32"), ("float32", "int32"), ("int8", "int32"), ("int32", "uint8"), ("bool", "int32"),
        ("int32", "bool"), ("float32", "float64"), ("float32", "float8_e4m3fn"), ("float8_e5m2", "float16"),
    ],
)  # fmt: skip
def test_copies_cast_as_stores_do(dtype, other):
    a = numbers(12, 20, dtype=dtype)
    target = np.dtype(getattr(ml_dtypes, other, other))
    wanted = (a.astype(np.int64) if a.dtype.kind == "i" else a.astype(np.float32)).astype(target)
    agree(moved("shared", "fragment", dtype, other), a, expected=wanted, targets=GENERAL)


def test_extents_of_slices_elements_names_and_ranks():
    @T.prim_func
    def main(
        A: T.Tensor((2, 16, 3, 20), "float32"),
        B: T.Tensor((40, 16), "float32"),
        C: T.Tensor((2, 16, 20), "float32"),
        D: T.Tensor((32, 16), "float32"),
        E: T.Tensor((16, 20), "float32"),
        F: T.Tensor((1, 32, 16), "float32"),
        G: T.Tensor((4,), "float32"),
    ):
        with T.Kernel(2, threads=64) as bx:
            s, t = T.alloc_shared((16, 20), "float32"), T.alloc_shared((32, 16), "float32")
            f, row = T.alloc_fragment((16, 20), "float32"), T.alloc_fragment((16,), "float32")
            T.copy(A[bx, 0:16, 1, :], s)  # axes of one are dropped
            T.copy(s, C[bx, 0:16, :])
            if bx == 0:
                T.copy(B[0:20, 0:16], t)  # the tile decides, not the slice
                T.copy(t, D)
                T.copy(t, F[0, 0, 0])  # an element takes the tile's extents
                region = A[0, 0:16, 2, :]
                T.copy(region, f)
                T.copy(f, E)
                T.copy(t[3, :], row)
                T.copy(row[0:2], G[0:2])
                T.copy(t[5, 6], G[2])
                T.copy(A[0, 0, 0, 3:4], G[3:4])

    a, b = numbers(2, 16, 3, 20), numbers(40, 16)
    scalars = [b[3, 0], b[3, 1], b[5, 6], a[0, 0, 0, 3]]
    agree(main, a, b, expected=[a[:, :, 1], b[:32], a[0, :, 2], b[None, :32], scalars])


def test_rows_outside_of_a_tensor_read_zero_and_are_not_written():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n, 24), "float32"), At: T.Tensor((5,), "int32"), B: T.Tensor((n, 24), "float32"),
             C: T.Tensor((5, 8, 24), "float32")):  # fmt: skip
        with T.Kernel(5, threads=64) as bx:
            s = T.alloc_shared((8, 24), "float32")
            start = At[bx]
            T.copy(A[start : start + 8, :], s)
            T.copy(s, C[bx, :, :])
            if bx == 2:
                for i, j in T.Parallel(8, 24):
                    s[i, j] += 1
                T.copy(s, B[start, 0])

    a, starts = numbers(21, 24), np.array([0, 5, 18, -3, 40], np.int32)
    padded = np.zeros((70, 24), np.float32)
    padded[10:31] = a
    b = np.zeros_like(a)
    b[18:] = a[18:] + 1
    found = agree(main, a, starts)
    np.testing.assert_array_equal(found[0][18:], b[18:])
    np.testing.assert_array_equal(found[1], np.stack([padded[10 + at : 18 + at] for at in starts]))


def test_copies_between_tensors_and_within_a_tile():
    @T.prim_func
    def main(
        A: T.Tensor((12, 20), "float32"), B: T.Tensor((12, 20), "float16"), C: T.Tensor((12, 20), "float32")
    ):
        with T.Kernel(3, threads=64) as bx:
            T.copy(A[bx * 4 : bx * 4 + 4, :], B[bx * 4 : bx * 4 + 4, :])
            if bx == 0:
                s = T.alloc_shared((12, 20), "float32")
                T.copy(A, s)
                T.copy(s[0:10, :], s[2:12, :])
                T.copy(s, C)

    a = numbers(12, 20)
    agree(main, a, expected=[a, np.concatenate([a[:2], a[:10]])])


def test_extents_that_are_known_at_run_time():
    @T.prim_func
    def main(
        A: T.Tensor((64,), "float32"),
        n: T.int32,
        B: T.Tensor((64,), "float32"),
        C: T.Tensor((64,), "float32"),
    ):
        with T.Kernel(1, threads=64):
            s, f = T.alloc_shared((64,), "float32"), T.alloc_fragment((64,), "float32")
            T.fill(s, 1)
            T.copy(A[0:n], s[0:n])
            T.copy(s, B)
            T.clear(f)
            T.fill(f[n:64], 3)
            T.copy(f, C)

    a = numbers(64)
    agree(main, a, 37, expected=[np.r_[a[:37], np.ones(27)], np.r_[np.zeros(37), np.full(27, 3)]])


def test_places_that_memory_decides():
    @T.prim_func
    def main(
        A: T.Tensor((12, 20), "float32"), At: T.Tensor((3,), "int32"), B: T.Tensor((3, 20), "float32"),
        C: T.Tensor((3, 20), "float32"), D: T.Tensor((3, 2), "float32"),
    ):  # fmt: skip
        with T.Kernel(3, threads=64) as bx:
            s, f = T.alloc_shared((12, 20), "float32"), T.alloc_fragment((12, 20), "float32")
            row, at = T.alloc_fragment((20,), "float32"), T.alloc_fragment((3,), "int32")
            T.copy(A, s)
            T.copy(A, f)
            T.copy(At, at)
            T.copy(s[At[bx], :], row)
            T.copy(row, B[bx, :])
            T.copy(f[At[bx], :], row)
            for j in T.Parallel(20):
                C[bx, j] = row[19 - j]
            D[bx, 0] = f[At[bx], At[bx]]
            D[bx, 1] = s[at[bx], 2]

    a, at = numbers(12, 20), np.array([3, 11, 0], np.int32)
    agree(main, a, at, expected=[a[at], a[at][:, ::-1], np.stack([a[at, at], a[at, 2]], 1)])


def test_hints_change_no_result():
    @T.prim_func
    def main(A: T.Tensor((12, 20), "float32"), B: T.Tensor((12, 20), "float32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((12, 20), "float32")
            T.copy(
                A, s, coalesced_width=2, disable_tma=True, eviction_policy="evict_first",
                prefer_instruction="cp_async", annotations={"unknown": 1, "coalesced_width": 4},
                loop_layout=T.Fragment((12, 20), lambda i, j: (j, i)),
            )  # fmt: skip
            T.async_copy(A, s, coalesced_width=4)
            T.ptx_commit_group()
            T.ptx_wait_group(0)
            T.copy(s, B, prefer_instruction="tma", annotations={"eviction_policy": "evict_last"})

    a = numbers(12, 20)
    agree(main, a, expected=a)


def test_fills_of_tiles_regions_elements_and_names():
    @T.prim_func
    def main(B: T.Tensor((6, 8), "float32"), C: T.Tensor((6, 8), "int32"), D: T.Tensor((4, 4), "float16")):
        with T.Kernel(1, threads=64):
            s, f = T.alloc_shared((6, 8), "float32"), T.alloc_fragment((6, 8), "int32")
            own = T.alloc_local((4,), "float16")
            T.fill(s, 1.5)
            T.fill(s[1:3, 2:5], 2)
            T.clear(s[5, :])
            T.fill(s[0, 0], 9)
            region = s[4, 0:4]
            T.fill(region, -T.infinity("float32"))
            T.copy(s, B)
            T.fill(f, 3.7)
            T.clear(f[2:4, :])
            T.fill(f[0, 1], 5)
            T.copy(f, C)
            T.fill(own, 2)
            T.fill(D, 1)
            T.fill(D[1:3, 1:3], own[3])

    s, f, d = np.full((6, 8), 1.5), np.full((6, 8), 3), np.ones((4, 4))
    s[1:3, 2:5], s[5], s[0, 0], s[4, :4] = 2, 0, 9, -np.inf
    f[2:4], f[0, 1] = 0, 5
    d[1:3, 1:3] = 2
    agree(main, expected=[s, f, d])


def test_transposed_tiles():
    @T.prim_func
    def main(
        A: T.Tensor((12, 20), "float32"), B: T.Tensor((2, 3, 5), "float32"), C: T.Tensor((20, 12), "float16"),
        D: T.Tensor((2, 5, 3), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=64):
            s, t = T.alloc_shared((12, 20), "float32"), T.alloc_shared((20, 12), "float16")
            u, v = T.alloc_shared((2, 3, 5), "float32"), T.alloc_shared((2, 5, 3), "float32")
            T.copy(A, s)
            T.copy(B, u)
            T.transpose(s, t)
            T.transpose(u, v)
            T.copy(t, C)
            T.copy(v, D)

    a, b = numbers(12, 20), numbers(2, 3, 5)
    agree(main, a, b, expected=[a.T, b.swapaxes(1, 2)])


@pytest.mark.parametrize(("stride", "dilation", "pad"), [(1, 1, 1), (2, 1, 0), (1, 2, 2)])
def test_columns_of_an_image(stride, dilation, pad):
    n, h, w, c, k = 2, 5, 6, 8, 3
    oh, ow = ((size + 2 * pad - dilation * (k - 1) - 1) // stride + 1 for size in (h, w))
    rows = -(-n * oh * ow // 16)

    @T.prim_func
    def main(X: T.Tensor((n, h, w, c), "float32"), Y: T.Tensor((rows * 16, k * k * c), "float32")):
        with T.Kernel(rows, threads=32) as bx:
            s = T.alloc_shared((16, 4), "float32")
            for step in T.serial(k * k * c // 4):
                T.im2col(X, s, bx, step, k, stride, dilation, pad)
                T.copy(s, Y[bx * 16, step * 4])

    x = numbers(n, h, w, c)
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    wanted = np.zeros((rows * 16, k * k * c), np.float32)
    for row in range(n * oh * ow):
        image, y, z = row // (oh * ow), row // ow % oh, row % ow
        taps = padded[image, y * stride : y * stride + dilation * (k - 1) + 1 : dilation,
                      z * stride : z * stride + dilation * (k - 1) + 1 : dilation]  # fmt: skip
        wanted[row] = taps.reshape(-1)
    agree(main, x, expected=wanted)


def test_values_outside_of_a_tensor():
    @T.prim_func
    def main(A: T.Tensor((10,), "float32"), B: T.Tensor((16,), "float32"), C: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=32):
            T.annotate_safe_value({A: -5.0})
            s = T.alloc_shared((16,), "float32")
            T.copy(A[0:16], s)
            T.copy(s, B)
            for i in T.Parallel(16):
                C[i] = A[i - 3]

    a = numbers(10)
    agree(main, a, expected=[np.r_[a, np.full(6, -5)], np.r_[[-5] * 3, a, [-5] * 3]])


def copying(use):
    @T.prim_func
    def main(A: T.Tensor((64, 48), "float32"), B: T.Tensor((2, 32, 16), "float32")):
        with T.Kernel(1, threads=32):
            s, f = T.alloc_shared((16, 8), "float32"), T.alloc_fragment((16, 8), "float32")
            T.clear(s)
            use(A, B, s, f)

    return main


@pytest.mark.parametrize(
    ("use", "match"),
    [
        (lambda A, B, s, f: T.copy(A, s), "axis 0 has 64 in A and 16 in"),
        (lambda A, B, s, f: T.copy(B, A), "ranks 3 and 2 differ"),
        (lambda A, B, s, f: T.copy(A[0:32, 0:8], s), "axis 0 of A has extent 32, .* holds 16"),
        (lambda A, B, s, f: T.copy(s, T.alloc_shared((16,), "float32")[0]), "too few for a tile"),
        (lambda A, B, s, f: T.copy(A[0:16:2, :], s), "has step 2"),
        (lambda A, B, s, f: T.copy(A[5:3, :], s), "a slice of A ends in front of where it begins"),
        (lambda A, B, s, f: T.async_copy(s, f), "from global into shared"),
        (lambda A, B, s, f: T.transpose(s, s), "trade the last two extents"),
    ],
)
def test_wrong_copies_show_both_shapes(use, match):
    with pytest.raises(SourceValueError, match=match) as caught:
        build(copying(use))
    assert caught.value.place.file == __file__


def test_an_unknown_eviction_policy():
    with pytest.raises(KeyError, match="evict_never"):
        build(copying(lambda A, B, s, f: T.copy(A[0, 0], s, eviction_policy="evict_never")))


@pytest.mark.parametrize("index", [(1, 2, 3), (70, 0), (0, -49)])
def test_wrong_indices_name_rank_and_shape(index):
    with pytest.raises(IndexError, match="A"):
        build(copying(lambda A, B, s, f: T.copy(A[index], s)))


@pytest.mark.parametrize(
    "use",
    [
        lambda A, B, s, f: T.copy(A[0:20, 0:8], s[0:20, :]),
        lambda A, B, s, f: T.copy(A[0:4, 0:8], f[14:18, :]),
        lambda A, B, s, f: T.fill(s[8:24, :], 0),
        lambda A, B, s, f: T.reduce_sum(s[0:17, :], T.alloc_fragment((17,), "float32")),
    ],
)
def test_slices_end_within_their_tile(use):
    with pytest.raises(IndexError, match="do not all exist") as caught:
        build(copying(use))
    assert caught.value.place.file == __file__


@pytest.mark.parametrize("blocks", [1, 2])
def test_a_start_in_front_of_a_tensor_is_that_for_any_number_of_blocks(blocks):
    @T.prim_func
    def windows(A: T.Tensor((blocks * 32,), "int32"), B: T.Tensor((blocks, 38), "int32")):
        with T.Kernel(blocks, threads=32) as bx:
            s = T.alloc_shared((38,), "int32")
            T.copy(A[bx * 32 - 3 : bx * 32 + 35], s)
            T.copy(s, B[bx, :])

    a = np.arange(blocks * 32, dtype=np.int32) + 1
    padded = np.pad(a, 3)
    agree(windows, a, expected=np.stack([padded[at : at + 38] for at in range(0, blocks * 32, 32)]))
