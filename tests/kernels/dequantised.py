"""Products with weights of 4 bits and less, or of 8-bit floats with scales."""

from __future__ import annotations

import argparse

import ml_dtypes
import numpy as np
from family_math import wide

import tilec
import tilec.language as T
from tilec.autotuner import autotune

NF4 = (
    -1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.09105004, 0.0, 0.0795803,
    0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1.0,
)  # fmt: skip


def _tir_u8_to_f4_to_bf16(nbit: int, val, pos, scale, dtype: str):
    """Number ``pos`` of the byte: sign, two bits of exponent, one of mantissa, into the bits of a bfloat16
    whose exponent grows by ``scale``."""
    assert nbit == 4
    assert dtype == T.bfloat16
    assert val.dtype == T.uint8
    mask = T.uint16((1 << nbit) - 1)
    f4 = (val >> (pos.astype(T.uint8) * T.uint8(nbit))).astype(T.uint16) & mask
    s = f4 >> T.uint16(3)
    e_f4 = (f4 & T.uint16(6)) >> T.uint16(1)
    # zero and one half have the exponent 0 and no hidden bit
    e_bf16 = T.min(e_f4 + scale.astype(T.uint16) + T.uint16(126), T.uint16((1 << 8) - 2))
    m_f4 = f4 & T.uint16(1)
    normal = ((s << T.uint16(15)) | (e_bf16 << T.uint16(7)) | (m_f4 << T.uint16(6))).astype(T.uint16)
    half = (s << T.uint16(15)) | ((e_bf16) << T.uint16(7))
    tiny = T.if_then_else(m_f4 == T.uint16(0), s << T.uint16(15), half)
    return T.reinterpret(T.if_then_else(e_f4 == T.uint16(0), tiny, normal), T.bfloat16)


@autotune(
    configs=[dict(block_M=32, block_N=32, block_K=64, num_stages=2, threads=128, split=1)],
)
@tilec.jit(out_idx=[-1])
def mxfp4_matmul(
    M,
    N,
    K,
    scale_size=32,
    with_bias=True,
    block_M=32,
    block_N=32,
    block_K=64,
    num_stages=2,
    threads=128,
    split=1,
):
    """A times weights in pairs of 4-bit floats, a power of two per 32 of them."""
    in_dtype, out_dtype, accum_dtype, storage_dtype, num_bits = T.bfloat16, T.bfloat16, T.float32, T.uint8, 4
    num_elems_per_byte = 8 // num_bits
    QK = K // num_elems_per_byte
    Block_QK = block_K // num_elems_per_byte
    A_shape, B_shape, Scale_shape = (M, K), (N, QK), (N, K // scale_size)
    Bias_shape = (M, N) if with_bias else (1, 1)
    assert K % (block_K * split) == 0

    def get_simple_dequant_func():
        @T.macro
        def simple_dequant(B_shared, B_dequantize_shared, Scale, bx, k):
            B_local = T.alloc_fragment((block_N, Block_QK), storage_dtype)
            B_dequantize_local = T.alloc_fragment((block_N, block_K), out_dtype)
            T.copy(B_shared, B_local)
            for i, j in T.Parallel(block_N, block_K):
                B_dequantize_local[i, j] = _tir_u8_to_f4_to_bf16(
                    num_bits,
                    B_local[i, j // num_elems_per_byte],
                    j % num_elems_per_byte,
                    Scale[bx * block_N + i, k * block_K // scale_size + j // scale_size],
                    dtype=out_dtype,
                )
            T.copy(B_dequantize_local, B_dequantize_shared)

        return simple_dequant

    @T.prim_func
    def main(
        A: T.Tensor(A_shape, in_dtype),
        B: T.Tensor(B_shape, storage_dtype),
        Scale: T.Tensor(Scale_shape, storage_dtype),
        Bias: T.Tensor(Bias_shape, out_dtype),
        C: T.Tensor((M, N), out_dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), in_dtype)
            B_shared = T.alloc_shared((block_N, Block_QK), storage_dtype)
            B_dequantize_shared = T.alloc_shared((block_N, block_K), in_dtype)
            Bias_shared = T.alloc_shared((block_M, block_N), out_dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            C_shared = T.alloc_shared((block_M, block_N), out_dtype)
            T.annotate_layout(
                {
                    B_shared: tilec.layout.make_swizzled_layout(B_shared),
                    C_shared: tilec.layout.make_swizzled_layout(C_shared),
                }
            )
            if with_bias:
                T.copy(
                    Bias[by * block_M : (by + 1) * block_M, bx * block_N : (bx + 1) * block_N], Bias_shared
                )
                T.copy(Bias_shared, C_local)
            else:
                T.clear(C_local)
            for k in T.Pipelined(K // block_K, num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[bx * block_N, k * block_K // num_elems_per_byte], B_shared)
                get_simple_dequant_func()(B_shared, B_dequantize_shared, Scale, bx, k)
                T.gemm(A_shared, B_dequantize_shared, C_local, transpose_B=True)
            T.copy(C_local, C_shared)
            T.copy(C_shared, C[by * block_M : (by + 1) * block_M, bx * block_N : (bx + 1) * block_N])

    return main


@tilec.jit(out_idx=[-1])
def w4a8_matmul(M, N, K, block_M=32, block_N=32, block_K=64, num_stages=2, threads=128):
    """int8 times packed signed int4, transposed: Ct = W A^T, accumulated in int32."""
    in_dtype, out_dtype, accum_dtype, storage_dtype, num_bits = "int8", "int32", "int32", "int8", 4
    num_elems_per_byte = 8 // num_bits

    def _tir_u8_to_i4_to_i8(nbit: int, val, pos, dtype: str):
        assert nbit == 4
        assert dtype == "int8"
        mask = T.uint8((1 << nbit) - 1)
        i4 = (val >> (pos.astype("uint8") * T.uint8(nbit))) & mask
        i8_shifted = T.reinterpret("int8", i4 << T.uint8(4))
        return i8_shifted >> T.int8(4)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), in_dtype),
        B: T.Tensor((N, K // num_elems_per_byte), storage_dtype),
        Ct: T.Tensor((N, M), out_dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), in_dtype)
            B_shared = T.alloc_shared((block_N, block_K // num_elems_per_byte), storage_dtype)
            B_local = T.alloc_fragment((block_N, block_K // num_elems_per_byte), storage_dtype)
            B_dequantize_local = T.alloc_fragment((block_N, block_K), in_dtype)
            B_dequantize_prev_local = T.alloc_fragment((block_N, block_K), in_dtype)
            Ct_local = T.alloc_fragment((block_N, block_M), accum_dtype)
            Ct_shared = T.alloc_shared((block_N, block_M), out_dtype)
            T.annotate_layout(
                {
                    B_shared: tilec.layout.make_swizzled_layout(B_shared),
                    Ct_shared: tilec.layout.make_swizzled_layout(Ct_shared),
                }
            )
            T.clear(Ct_local)
            for k in T.Pipelined(K // block_K, num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[bx * block_N, k * block_K // num_elems_per_byte], B_shared)
                T.copy(B_shared, B_local)
                for i, j in T.Parallel(block_N, block_K):
                    B_dequantize_local[i, j] = _tir_u8_to_i4_to_i8(
                        num_bits,
                        T.reinterpret(B_local[i, j // num_elems_per_byte], "uint8"),
                        j % num_elems_per_byte,
                        dtype=in_dtype,
                    )
                T.copy(B_dequantize_local, B_dequantize_prev_local)
                T.gemm(B_dequantize_prev_local, A_shared, Ct_local, transpose_B=True)
            T.copy(Ct_local, Ct_shared)
            T.copy(Ct_shared, Ct[bx * block_N : (bx + 1) * block_N, by * block_M : (by + 1) * block_M])

    return main


@tilec.jit
def nf4_matmul(A, Q, Table, Absmax, group: int = 64, bM: int = 32, bN: int = 32, bK: int = 64):
    """Weights are numbers of a table of 16, times the largest of their group; high nibble first."""
    M, N, K, G = T.dynamic("M"), *T.const("N K G")
    K2 = T.const("K2")
    A: T.Tensor[[M, K], T.bfloat16]
    Q: T.Tensor[[N, K2], T.uint8]
    Table: T.Tensor[[16], T.float32]
    Absmax: T.Tensor[[N, G], T.float32]
    C = T.empty((M, N), T.bfloat16)
    assert K == 2 * K2 and G * group == K, "two weights a byte, one scale a group"
    with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=128) as (bx, by):
        A_s, W_s = T.alloc_shared((bM, bK), T.bfloat16), T.alloc_shared((bN, bK), T.bfloat16)
        Q_s, table = T.alloc_shared((bN, bK // 2), T.uint8), T.alloc_shared((16,), T.float32)
        acc = T.alloc_fragment((bM, bN), T.float32)
        T.copy(Table, table)
        T.clear(acc)
        for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=2):
            T.copy(A[by * bM, ko * bK], A_s)
            T.copy(Q[bx * bN, ko * bK // 2], Q_s)
            for i, j in T.Parallel(bN, bK):
                nibble = T.if_then_else(j % 2 == 0, Q_s[i, j // 2] >> 4, Q_s[i, j // 2] & 15)
                W_s[i, j] = table[nibble] * Absmax[bx * bN + i, (ko * bK + j) // group]
            T.gemm(A_s, W_s, acc, transpose_B=True)
        T.copy(acc, C[by * bM, bx * bN])
    return C


@tilec.jit(out_idx=[-1], pass_configs={"tl.disable_warp_specialized": True})
def gptq_matmul(M, N, K, group_size=32, block_M=32, block_N=64, block_K=32, dtype="float16"):
    """Weights (K / 8, N) of int32 holding eight 4-bit numbers, zero points packed likewise along N."""
    pack = 8

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        qweight: T.Tensor((K // pack, N), "int32"),
        qzeros: T.Tensor((K // group_size, N // pack), "int32"),
        scales: T.Tensor((K // group_size, N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_s, B_s = T.alloc_shared((block_M, block_K), dtype), T.alloc_shared((block_K, block_N), dtype)
            q_s = T.alloc_shared((block_K // pack, block_N), "int32")
            acc = T.alloc_fragment((block_M, block_N), "float")
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, ko * block_K], A_s)
                T.copy(qweight[ko * (block_K // pack), bx * block_N], q_s)
                for i, j in T.Parallel(block_K, block_N):
                    n, g = bx * block_N + j, (ko * block_K + i) // group_size
                    w = (q_s[i // pack, j] >> (4 * (i % pack))) & 0xF
                    z = (qzeros[g, n // pack] >> (4 * (n % pack))) & 0xF
                    B_s[i, j] = T.cast(w - z, dtype) * scales[g, n]
                T.gemm(A_s, B_s, acc)
            T.copy(acc, C[by * block_M, bx * block_N])

    return main


@tilec.jit(out_idx=[-1])
def fp8_block_matmul(M, N, K, group=64, block_M=32, block_N=64, fp8=T.float8_e4m3fn):
    """A has a scale per row and group of K, W one per square: partial sums are scaled, then added."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), fp8),
        W: T.Tensor((N, K), fp8),
        scales_a: T.Tensor((M, T.ceildiv(K, group)), "float32"),
        scales_b: T.Tensor((T.ceildiv(N, group), T.ceildiv(K, group)), "float32"),
        C: T.Tensor((M, N), "bfloat16"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared, B_shared = T.alloc_shared((block_M, group), fp8), T.alloc_shared((block_N, group), fp8)
            C_shared = T.alloc_shared((block_M, block_N), "bfloat16")
            Scale_C_shared = T.alloc_shared((block_M), "float32")
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            C_local_accum = T.alloc_fragment((block_M, block_N), "float32")
            T.use_swizzle(panel_size=10)
            T.clear(C_local)
            T.clear(C_local_accum)
            for k in T.Pipelined(T.ceildiv(K, group), num_stages=4):
                T.copy(A[by * block_M, k * group], A_shared)
                T.copy(W[bx * block_N, k * group], B_shared)
                Scale_B = scales_b[bx * block_N // group, k]
                for i in T.Parallel(block_M):
                    Scale_C_shared[i] = scales_a[by * block_M + i, k] * Scale_B
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
                for i, j in T.Parallel(block_M, block_N):
                    C_local_accum[i, j] += C_local[i, j] * Scale_C_shared[i]
                T.clear(C_local)
            T.copy(C_local_accum, C_shared)
            T.copy(C_shared, C[by * block_M, bx * block_N])

    return main


@tilec.jit(out_idx=[-1])
def gemv_int4(N, K, n_partition=4, reduce_thread=32, micro=8, dtype="float16"):
    """A row of A times packed rows: each thread takes a few weights at a time, a row's threads add up."""
    block_K = reduce_thread * micro

    @T.prim_func
    def main(
        A: T.Tensor((1, K), dtype),
        B: T.Tensor((N, K // 2), "int8"),
        scale: T.Tensor((N,), dtype),
        C: T.Tensor((1, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, n_partition), threads=(reduce_thread, n_partition)) as bx:
            A_local = T.alloc_local((micro,), dtype)
            B_quant = T.alloc_local((micro // 2,), "int8")
            B_dequant = T.alloc_local((micro,), dtype)
            accum = T.alloc_local((1,), "float32")
            reduced = T.alloc_local((1,), "float32")
            kr = T.get_thread_binding(0)
            ni = T.get_thread_binding(1)
            T.clear(accum)
            for ko in T.serial(T.ceildiv(K, block_K)):
                for v in T.vectorized(micro):
                    A_local[v] = A[0, ko * block_K + kr * micro + v]
                for v in T.vectorized(micro // 2):
                    B_quant[v] = B[
                        bx * n_partition + ni, ko * (reduce_thread * micro // 2) + kr * (micro // 2) + v
                    ]
                for v in T.serial(micro):
                    raw = (B_quant[v // 2] >> ((v % 2) * 4).astype("int8")) & T.int8(15)
                    B_dequant[v] = T.cast(raw.astype("int32") - 8, dtype)
                for v in T.serial(micro):
                    accum[0] += A_local[v].astype("float32") * B_dequant[v].astype("float32")
            with T.attr(
                T.comm_reducer(lambda x, y: x + y, [T.cast(0, "float32")]),
                "reduce_scope",
                T.reinterpret(T.uint64(0), dtype="handle"),
            ):
                T.evaluate(
                    T.tvm_thread_allreduce(T.uint32(1), accum[0], True, reduced[0], kr, dtype="handle")
                )
            if kr == 0:
                C[0, bx * n_partition + ni] = T.cast(reduced[0], dtype) * scale[bx * n_partition + ni]

    return main


@tilec.jit(out_idx=[-1])
def ternary_matmul(M, N, K, block_M=32, block_N=32, block_K=64, threads=128):
    """int8 activations times {-1, 0, 1} in two bits, scaled per row and per column."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "int8"),
        B: T.Tensor((N, K // 4), "uint8"),
        a_scale: T.Tensor((M,), "float32"),
        b_scale: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_s, B_s = T.alloc_shared((block_M, block_K), "int8"), T.alloc_shared((block_N, block_K), "int8")
            q = T.alloc_fragment((block_N, block_K // 4), "uint8")
            w = T.alloc_fragment((block_N, block_K), "int8")
            acc = T.alloc_fragment((block_M, block_N), "int32")
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, ko * block_K], A_s)
                T.copy(B[bx * block_N, ko * block_K // 4], q)
                for i, j in T.Parallel(block_N, block_K):
                    w[i, j] = ((q[i, j // 4] >> (2 * (j % 4)).astype("uint8")) & T.uint8(3)).astype(
                        "int8"
                    ) - T.int8(1)
                T.copy(w, B_s)
                T.gemm(A_s, B_s, acc, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                m, n = by * block_M + i, bx * block_N + j
                if m < M and n < N:
                    C[m, n] = acc[i, j] * a_scale[m] * b_scale[n]

    return main


# ---- references and inputs ----

_FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def _nibbles(packed, high_first=False):
    """Two numbers of 0 to 15 per byte, along the last axis."""
    low, high = packed & 15, packed >> 4
    return np.stack([high, low] if high_first else [low, high], -1).reshape(*packed.shape[:-1], -1)


def mxfp4_matmul_reference(A, B, Scale, Bias):
    bits = _nibbles(B)
    values = np.where(bits & 8, -1, 1) * _FP4[bits & 7]
    weights = values * np.exp2(Scale.astype(np.float32)).repeat(32, 1)
    return wide(A) @ weights.T + wide(Bias)


def mxfp4_matmul_inputs(dims, rng):
    M, N, K = (dims[name] for name in "MNK")
    packed, scale = rng.integers(0, 256, (N, K // 2)), rng.integers(0, 3, (N, K // 32))
    return [
        wide(rng.standard_normal((M, K))) * 0.1,
        packed.astype(np.uint8),
        scale.astype(np.uint8),
        rng.standard_normal((M, N)),
    ]


def w4a8_matmul_reference(A, B):
    bits = _nibbles(B.view(np.uint8)).astype(np.int32)
    return (np.where(bits > 7, bits - 16, bits) @ A.T.astype(np.int32)).astype(np.int32)


def nf4_matmul_reference(A, Q, Table, Absmax):
    weights = Table[_nibbles(Q, high_first=True)] * Absmax.repeat(64, 1)
    return wide(A) @ wide(weights.astype(ml_dtypes.bfloat16)).T


def nf4_matmul_inputs(dims, rng):
    M, N, K, G = (dims[name] for name in "MNKG")
    packed = rng.integers(0, 256, (N, K // 2)).astype(np.uint8)
    return [rng.standard_normal((M, K)) * 0.2, packed, np.array(NF4, np.float32), rng.uniform(0.5, 2, (N, G))]


def gptq_matmul_reference(A, qweight, qzeros, scales):
    shifts = 4 * np.arange(8)
    w = ((qweight[:, None, :] >> shifts[:, None]) & 15).reshape(-1, qweight.shape[1])
    z = ((qzeros[:, :, None] >> shifts) & 15).reshape(qzeros.shape[0], -1)
    group = w.shape[0] // z.shape[0]
    return wide(A) @ ((w - z.repeat(group, 0)) * wide(scales).repeat(group, 0))


def gptq_matmul_inputs(dims, rng, group=32):
    M, N, K = (dims[name] for name in "MNK")
    words = [
        rng.integers(-(2**31), 2**31, shape).astype(np.int32) for shape in ((K // 8, N), (K // group, N // 8))
    ]
    return [rng.standard_normal((M, K)), *words, rng.uniform(0.01, 0.05, (K // group, N))]


def fp8_block_matmul_reference(A, W, scales_a, scales_b, group=64):
    K = A.shape[1]
    a = wide(A) * scales_a.repeat(group, 1)[:, :K]
    return a @ (wide(W) * scales_b.repeat(group, 0)[: W.shape[0]].repeat(group, 1)[:, :K]).T


def fp8_block_matmul_inputs(dims, rng, group=64):
    M, N, K = (dims[name] for name in "MNK")
    G = -(-K // group)
    floats = [rng.standard_normal(shape) for shape in ((M, K), (N, K))]
    return [*floats, rng.uniform(0.1, 0.3, (M, G)), rng.uniform(0.1, 0.3, (-(-N // group), G))]


def gemv_int4_reference(A, B, scale):
    weights = _nibbles(B.view(np.uint8)).astype(np.float32) - 8
    return wide(A) @ weights.T * wide(scale)


def gemv_int4_inputs(dims, rng):
    N, K = dims["N"], dims["K"]
    packed = rng.integers(-128, 128, (N, K // 2)).astype(np.int8)
    return [rng.standard_normal((1, K)), packed, rng.uniform(0.01, 0.1, N)]


def ternary_matmul_reference(A, B, a_scale, b_scale):
    bits = np.stack([(B >> (2 * n)) & 3 for n in range(4)], -1).reshape(B.shape[0], -1).astype(np.int32) - 1
    return A.astype(np.int32) @ bits.T * a_scale[:, None] * b_scale


def ternary_matmul_inputs(dims, rng):
    M, N, K = (dims[name] for name in "MNK")
    bits = rng.integers(0, 3, (N, K // 4, 4))
    packed = (bits << (2 * np.arange(4))).sum(-1).astype(np.uint8)
    scales = (rng.uniform(0.001, 0.01, M), rng.uniform(0.5, 2, N))
    return [rng.integers(-127, 128, (M, K)).astype(np.int8), packed, *scales]


def main(argv=None):
    """Weights of 4-bit floats beside torch, with sources and an exported library."""
    import tempfile

    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--m", type=int, default=64)
    parser.add_argument("--n", type=int, default=64)
    parser.add_argument("--k", type=int, default=128)
    args = parser.parse_args(argv)
    m, n, k = args.m, args.n, args.k
    kernel = mxfp4_matmul(m, n, k, block_M=32, block_N=32, block_K=64, num_stages=2, threads=128, split=1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    qw = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device=device)
    scale = torch.randint(0, 3, (n, k // 32), dtype=torch.uint8, device=device)
    a = torch.randn(m, k, device=device, dtype=torch.bfloat16)
    bias = torch.randn(m, n, device=device, dtype=torch.bfloat16)
    c = kernel(a, qw, scale, bias)
    arrays = (x.cpu().float() if x.is_floating_point() else x.cpu() for x in (a, qw, scale, bias))
    want = torch.from_numpy(mxfp4_matmul_reference(*(x.numpy() for x in arrays)))
    torch.testing.assert_close(c.float().cpu(), want.float(), rtol=3e-2, atol=0.5)
    assert kernel.get_kernel_source()
    with tempfile.TemporaryDirectory() as folder:
        kernel.export_library(f"{folder}/kernel.so")
    print("All checks pass.")


if __name__ == "__main__":
    main()
