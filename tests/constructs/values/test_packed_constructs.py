"""Two elements a byte: int4, uint4 and float4_e2m1fn in tensors and tiles."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec
import tilec.language as T
from tilec.errors import UnsupportedError

FLOAT4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def unpacked(a, kind):
    """The elements of bytes, the low nibble first."""
    nibbles = np.stack([a & 15, a >> 4], axis=-1).reshape(*a.shape[:-1], -1)
    if kind == "float4_e2m1fn":
        return FLOAT4[nibbles]
    return nibbles.astype(np.int32) - 16 * ((nibbles > 7) & (kind == "int4"))


def all_bytes():
    return np.arange(256, dtype=np.uint8).reshape(8, 32)


@pytest.mark.parametrize("kind", ["int4", "uint4", "float4_e2m1fn"])
def test_tensors_and_tiles_of_half_bytes(kind):
    """From a tensor through shared memory and a fragment; the elements are cast one by one."""

    @T.prim_func
    def main(A: T.Tensor((8, 64), kind), C: T.Tensor((8, 64), "float32")):
        with T.Kernel(2, threads=32) as bx:
            s, f = T.alloc_shared((4, 64), kind), T.alloc_fragment((4, 64), kind)
            T.copy(A[bx * 4, 0], s)
            T.copy(s, f)
            for i, j in T.Parallel(4, 64):
                C[bx * 4 + i, j] = T.cast(f[i, j], "float32") * 2.0

    a = all_bytes()
    agree(main, a, expected=unpacked(a, kind).astype(np.float32) * 2)


def test_a_dequantised_product():
    @tilec.jit
    def kernel(A, B):
        M, N, K = T.const("M N K")
        A: T.Tensor[[M, K], T.float16]
        B: T.Tensor[[N, K], T.int4]
        C = T.empty((M, N), T.float32)
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((M, K), T.float16), T.alloc_shared((N, K), T.int4)
            wide, acc = T.alloc_shared((N, K), T.float16), T.alloc_fragment((M, N), T.float32)
            T.copy(A, a)
            T.copy(B, b)
            for i, j in T.Parallel(N, K):
                wide[i, j] = b[i, j]
            T.clear(acc)
            T.gemm(a, wide, acc, transpose_B=True)
            T.copy(acc, C)
        return C

    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (16, 32)).astype(np.float16)
    b = rng.integers(0, 256, (16, 16)).astype(np.uint8)
    agree(kernel, a, b, expected=a.astype(np.float32) @ unpacked(b, "int4").T.astype(np.float32))


def test_copies_move_bytes_and_clear_zeroes_them():
    @T.prim_func
    def main(A: T.Tensor((8, 64), "uint4"), C: T.Tensor((8, 64), "uint4"), D: T.Tensor((8, 16), "uint4")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((8, 64), "uint4")
            T.clear(s)
            T.copy(A[0:4, :], s[4:8, :])
            T.copy(s, C)
            T.copy(A[:, 16:32], D)

    a = all_bytes()
    agree(main, a, expected=[np.concatenate([np.zeros_like(a[:4]), a[:4]]), a[:, 8:16]])


def test_powers_of_two_in_a_byte():
    """float8_e8m0fnu: read as float32, written rounded to the nearest power, copied and filled as bytes."""

    @T.prim_func
    def main(
        A: T.Tensor((256,), "float8_e8m0fnu"),
        X: T.Tensor((8,), "float32"),
        C: T.Tensor((256,), "float32"),
        D: T.Tensor((256,), "float8_e8m0fnu"),
        E: T.Tensor((8,), "float8_e8m0fnu"),
        F: T.Tensor((8,), "float8_e8m0fnu"),
    ):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((256,), "float8_e8m0fnu")
            T.copy(A, s)
            T.copy(s, D)
            T.fill(F, 4.0)
            for i in T.Parallel(256):
                C[i] = s[i]
            for i in T.Parallel(8):
                E[i] = X[i]

    a = np.arange(256, dtype=np.uint8)
    x = np.array([1, 0.25, 3, 1.4, np.nan, -2, np.inf, 0], np.float32)
    powers = np.append(2.0 ** (np.arange(255) - 127), np.nan).astype(np.float32)
    rounded = np.array([127, 125, 129, 127, 255, 255, 254, 0], np.uint8)
    agree(main, a, x, expected=[powers, a, rounded, np.full(8, 129, np.uint8)], rtol=0, atol=0)


def test_casts_round_to_numbers_of_small_dtypes():
    """What is cast is computed with as elements of the dtype are."""

    @T.prim_func
    def main(
        X: T.Tensor((8,), "float32"),
        C: T.Tensor((8,), "float32"),
        D: T.Tensor((8,), "float8_e8m0fnu"),
        E: T.Tensor((8,), "float32"),
        F: T.Tensor((8,), "int32"),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                C[i] = T.cast(X[i], "float8_e8m0fnu")
                D[i] = T.cast(X[i], "float8_e8m0fnu")
                E[i] = T.cast(X[i], "float4_e2m1fn")
                F[i] = T.cast(X[i] * 3, "int4")

    x = np.array([1, 0.25, 3, 1.4, 2.6, 5.1, 0.7, 100], np.float32)
    powers = np.array([127, 125, 129, 127, 128, 129, 126, 134], np.uint8)
    fours = np.array([1, 0, 3, 1.5, 3, 6, 0.5, 6], np.float32)
    whole = np.array([3, 0, -7, 4, 7, -1, 2, -4], np.int32)
    agree(main, x, expected=[2.0 ** (powers.astype(np.float32) - 127), powers, fours, whole], rtol=0, atol=0)


def test_numbers_fill_half_bytes():
    @T.prim_func
    def main(A: T.Tensor((2, 8), "int4"), B: T.Tensor((2, 8), "float4_e2m1fn")):
        with T.Kernel(1, threads=32):
            T.fill(A, -3)
            T.fill(B, -2.9)

    agree(main, expected=[np.full((2, 4), 0xDD, np.uint8), np.full((2, 4), 0xDD, np.uint8)])


def test_a_tensor_of_half_bytes_shows_its_size():
    @tilec.jit
    def kernel(A):
        N = T.const("N")
        A: T.Tensor[[N], T.uint4]
        C = T.empty((N,), T.int32)
        with T.Kernel(1, threads=32):
            for i in T.Parallel(N):
                C[i] = A[i]
        return C

    a = np.arange(16, dtype=np.uint8) * 15
    agree(kernel, a, expected=unpacked(a, "uint4"))


def test_a_thread_stores_half_bytes_of_its_own():
    @T.prim_func
    def main(A: T.Tensor((32, 4), "int32"), D: T.Tensor((32, 4), "int32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            own = T.alloc_local((4,), "int4")
            for k in T.serial(4):
                own[k] = A[tx, k]
            for k in T.serial(4):
                D[tx, k] = own[k]

    a = np.random.default_rng(1).integers(-8, 8, (32, 4)).astype(np.int32)
    agree(main, a, expected=a)


def _storing(body):
    @T.prim_func
    def main(A: T.Tensor((8, 64), "uint4"), C: T.Tensor((8, 64), "uint4")):
        with T.Kernel(1, threads=32):
            body(A, C)

    return main


def test_threads_do_not_share_a_byte():
    def stores(A, C):
        C[1, 2] = A[1, 2]

    def loops(A, C):
        loop = T.Parallel(8, 64)
        i, j = loop.open()
        C[i, j] = A[i, j]
        loop.close()

    for each in (stores, loops):
        with pytest.raises(UnsupportedError, match="two uint4 share a byte"):
            elaborated(_storing(each), (), None, {}, {})


def test_copies_begin_and_end_between_bytes():
    with pytest.raises(UnsupportedError, match="does not move whole bytes"):
        elaborated(_storing(lambda A, C: T.copy(A[:, 1:33], C[:, 0:32])), (), None, {}, {})


def test_the_last_axis_is_even():
    kernel = _storing(lambda A, C: T.alloc_shared((7,), "int4"))
    with pytest.raises(ValueError, match="last axis of 7"):
        elaborated(kernel, (), None, {}, {})


@pytest.mark.parametrize(
    ("kind", "loop"),
    [("int4", T.unroll), ("uint4", T.serial), ("float4_e2m1fn", T.vectorized)],
    ids=["int4", "uint4", "float4"],
)
def test_single_elements_of_tiles_of_each_thread(kind, loop):
    """They are taken over as they are, in any order, and read one by one."""

    @T.prim_func
    def main(A: T.Tensor((32, 4), kind), B: T.Tensor((32, 4), "float32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            own, back = T.alloc_local((4,), kind), T.alloc_local((4,), kind)
            for v in loop(4):
                own[v] = A[tx, v]
            back[3] = own[0]
            back[0] = own[3]
            for v in T.serial(2):
                back[1 + v] = own[1 + v]
            for v in loop(4):
                B[tx, v] = back[v]

    a = np.random.default_rng(3).integers(0, 256, (32, 2)).astype(np.uint8)
    agree(main, a, expected=unpacked(a, kind)[:, [3, 1, 2, 0]].astype(np.float32))


def test_numbers_become_the_nearest_float4():
    @T.prim_func
    def main(A: T.Tensor((32, 4), "float32"), B: T.Tensor((32, 4), "float32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            own = T.alloc_local((4,), "float4_e2m1fn")
            for v in T.serial(4):
                own[v] = A[tx, v]
            for v in T.serial(4):
                B[tx, v] = own[v]

    ties = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, np.inf, np.nan, -0.0, 0.1, 7, 1e-30, 4.999, 5.001, 0.7501]
    values = np.resize(np.array([*ties, *(-np.array(ties))], np.float32), 128).reshape(32, 4)
    codes = np.array([0, 1, 1, 2, 2, 4, 4, 6, 6, 0, 0, 6, 0, 4, 6, 1], np.float32)
    wanted = np.resize(np.array([*codes, *(-codes)]), 128).reshape(32, 4)
    wanted[np.isnan(values)] = 6
    agree(main, values, expected=wanted)


def test_iterations_that_write_both_halves_of_a_byte():
    @T.prim_func
    def main(A: T.Tensor((8, 32), "float32"), B: T.Tensor((8, 32), "int4")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((8, 32), "int4")
            T.clear(tile)
            for i, j in T.Parallel(8, 16):
                for half in T.serial(2):
                    tile[i, 2 * j + half] = T.cast(A[i, 2 * j + half], "int32")
            T.copy(tile, B)

    wanted = all_bytes()[:, :16]
    agree(main, unpacked(wanted, "int4").astype(np.float32), expected=wanted)
