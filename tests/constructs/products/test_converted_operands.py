"""Operands of products that a launch converts, unpacks or scales on their way, on sm_90a: raw tiles by TMA,
vectors of their elements, products beside the conversion; with the results of the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.interp.values import numpy_dtype
from tilec.targets import parse_target

M, N, K, TILE = 128, 64, 320, 64
SM90A = parse_target("sm_90a")


def halves(*shape, seed=5):
    return (np.random.default_rng(seed).standard_normal(shape) / 4).astype(np.float16)


def product(make, source, columns=K, side="first", threads=128, stages=3):
    """C = A B^T, ``a`` being made of a box of ``source`` elements by ``make``; 2 B A^T for the "second"
    side."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, columns), source),
        B: T.Tensor((N, K), "float16"),
        C: T.Tensor((M, N) if side == "first" else (N, M), "float32"),
    ):
        with T.Kernel(M // TILE, threads=threads) as bx:
            a, b = T.alloc_shared((TILE, TILE), "float16"), T.alloc_shared((N, TILE), "float16")
            acc = T.alloc_fragment((TILE, N), "float32")
            T.clear(acc)
            for k in T.Pipelined(K // TILE, num_stages=stages):
                make(A, a, bx, k)
                T.copy(B[0, k * TILE], b)
                if side == "first":
                    T.gemm(a, b, acc, transpose_B=True)
                else:
                    T.gemm(b, a, acc, transpose_B=True)
            if side == "first":
                T.copy(acc, C[bx * TILE, 0])
            else:
                for i, j in T.Parallel(N, TILE):
                    acc[i, j] *= 2
                T.copy(acc, C[0, bx * TILE])

    return kernel


@T.macro
def by_copy(A, a, bx, k):
    T.copy(A[bx * TILE, k * TILE], a)


@T.macro
def by_loop(A, a, bx, k):
    for i, j in T.Parallel(TILE, TILE):
        a[i, j] = T.cast(A[bx * TILE + i, k * TILE + j] * 2, "float16")


@T.macro
def by_nibbles(A, a, bx, k):
    for i, j, part in T.Parallel(TILE, TILE // 2, 2):
        bits = A[bx * TILE + i, k * (TILE // 2) + j] >> T.cast(4 * part, "uint8")
        a[i, 2 * j + part] = T.cast(bits & T.uint8(15), "float16") - T.float16(8)


def case(kind):
    """A maker, what it is given, and the operand that it makes."""
    rng = np.random.default_rng(7)
    if kind == "nibbles":
        given = rng.integers(0, 256, (M, K // 2)).astype(np.uint8)
        return by_nibbles, given, np.stack([given & 15, given >> 4], -1).reshape(M, K).astype(np.float32) - 8
    if kind == "bytes":
        given = rng.integers(-128, 128, (M, K)).astype(np.int8)
        return by_copy, given, given.astype(np.float32)
    given = halves(M, K).astype(np.float32)
    return (by_loop, given, 2 * given) if kind == "loop" else (by_copy, given, given)


def checked(kernel, given, B, expected, *notes):
    made = lower(elaborated(kernel, (given, B), None, {}, {}), SM90A).launches[0]
    assert any("A_raw" in road.statement and road.kind == "tma" for road in made.roads)
    assert all(any(note in told for told in made.notes) for note in notes), made.notes
    agree(kernel, given, B, expected=expected, targets=("sm_90a",), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("kind", ["floats", "bytes", "loop", "nibbles"])
def test_raw_tiles_come_by_tma_and_first_operands_stay_in_registers(kind):
    make, given, left = case(kind)
    B = halves(N, K, seed=6)
    kernel = product(make, str(given.dtype), given.shape[1])
    checked(kernel, given, B, left @ B.astype(np.float32).T, "a stays in registers")


@pytest.mark.parametrize("kind", ["bytes", "nibbles"])
def test_second_operands_stay_in_registers_of_a_product_turned(kind):
    make, given, left = case(kind)
    B = halves(N, K, seed=6)
    kernel = product(make, str(given.dtype), given.shape[1], "second")
    turned = 2 * B.astype(np.float32) @ left.T
    checked(kernel, given, B, turned, "the product of a is computed transposed", "a stays in registers")


def test_operands_stored_across_k_have_two_versions():
    given = np.random.default_rng(7).integers(-128, 128, (K, M)).astype(np.int8)
    B = halves(N, K, seed=6)

    @T.prim_func
    def kernel(A: T.Tensor((K, M), "int8"), B: T.Tensor((N, K), "float16"), C: T.Tensor((N, M), "float32")):
        with T.Kernel(M // TILE, threads=128) as bx:
            a, b = T.alloc_shared((TILE, TILE), "float16"), T.alloc_shared((N, TILE), "float16")
            acc = T.alloc_fragment((N, TILE), "float32")
            T.clear(acc)
            for k in T.Pipelined(K // TILE, num_stages=3):
                T.copy(A[k * TILE, bx * TILE], a)
                T.copy(B[0, k * TILE], b)
                T.gemm(b, a, acc)
            T.copy(acc, C[0, bx * TILE])

    expected = B.astype(np.float32) @ given.astype(np.float32)
    checked(kernel, given, B, expected, "a has two versions")


@T.macro
def by_shared_bytes(A, a, bx, k):
    for i, j in T.Parallel(TILE, TILE):
        bits = A[bx * TILE + i, k * (TILE // 2) + j // 2] >> T.cast(j % 2 * 4, "uint8")
        a[i, j] = T.cast(bits & T.uint8(15), "float16") - T.float16(8)


def test_values_that_share_a_byte_are_made_of_one_vector_of_bytes():
    _, given, _ = case("nibbles")
    made = elaborated(product(by_shared_bytes, "uint8", K // 2), (given, halves(N, K)), None, {}, {})
    text = cuda.source(to_tir(lower(made, SM90A), SM90A), SM90A, "kernel").rsplit("__global__", 1)[1]
    assert "uchar A_raw_v_ptr[1]" in text
    assert text.count("tilec_counted_f16_u4_less_8(") == 1


def across(dtype, less, result):
    """C = B (A - less) with bytes A that lie across K."""

    @T.prim_func
    def kernel(A: T.Tensor((K, M), dtype), B: T.Tensor((N, K), result), C: T.Tensor((N, M), "float32")):
        with T.Kernel(M // TILE, threads=128) as bx:
            raw, a = T.alloc_shared((TILE, TILE), dtype), T.alloc_shared((TILE, TILE), result)
            b, acc = T.alloc_shared((N, TILE), result), T.alloc_fragment((N, TILE), "float32")
            T.clear(acc)
            for k in T.Pipelined(K // TILE, num_stages=2):
                T.copy(A[k * TILE, bx * TILE], raw)
                T.copy(B[0, k * TILE], b)
                for i, j in T.Parallel(TILE, TILE):
                    a[i, j] = T.cast(raw[i, j], result) - T.cast(less, result)
                T.gemm(b, a, acc)
            T.copy(acc, C[0, bx * TILE])

    return kernel


@pytest.mark.parametrize(
    ("dtype", "less", "result", "helper"),
    [
        ("int8", 0, "float16", "tilec_pair8_f16_128_0_8"),
        ("int8", 3, "float16", "tilec_pair8_f16_131_16_24"),
        ("uint8", 128, "float16", "tilec_pair8_f16_128_16_24"),
        ("uint8", -5, "float16", "tilec_pair8_f16_less_5_0_8"),
        ("int8", 0, "bfloat16", "tilec_pair8_bf16_128_16_24"),
        ("uint8", 128, "bfloat16", "tilec_pair8_bf16_128_0_8"),
    ],
)
def test_four_bytes_become_floats_from_one_word(dtype, less, result, helper):
    ends = np.iinfo(dtype)
    given = np.random.default_rng(8).integers(ends.min, ends.max + 1, (K, M)).astype(dtype)
    B = np.random.default_rng(9).integers(-2, 3, (N, K)).astype(numpy_dtype(result))
    made = elaborated(across(dtype, less, result), (given, B), None, {}, {})
    text = cuda.source(to_tir(lower(made, SM90A), SM90A), SM90A, "kernel").rsplit("__global__", 1)[1]
    assert f"{helper}(" in text
    expected = B.astype(np.float32) @ (given.astype(np.float32) - less)
    agree(across(dtype, less, result), given, B, expected=expected, targets=("sm_90a",))
