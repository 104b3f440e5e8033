"""Matrix products of 8- and 4-bit floats with a scale for neighbours along K: mxfp8, mxfp4 and nvfp4.

Activations and weights are quantised alike: ``A`` (M, K) and ``W`` (N, K) hold numbers, ``SFA`` and ``SFW``
the scales of each row, K / sf_size of them. float4_e2m1fn lies two a byte, the first one in the low nibble.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from tile_math import f32

import tilec
import tilec.language as T

#: Numbers, scales, and how many neighbours share one.
MXFP8 = ("float8_e4m3fn", "float8_e8m0fnu", 32)
MXFP4 = ("float4_e2m1fn", "float8_e8m0fnu", 32)
NVFP4 = ("float4_e2m1fn", "float8_e4m3fn", 16)
#: The exponent of the largest number of each type (OCP Microscaling Formats Specification 1.0, 5.3).
_LARGEST = {"float8_e4m3fn": 8, "float4_e2m1fn": 2}


@tilec.jit(out_idx=[-1])
def matmul_blockscaled(
    M, N, K, dtype="float8_e4m3fn", scale_dtype="float8_e8m0fnu", sf_size=32, out_dtype="bfloat16",
    bM=64, bN=64, bK=128, num_stages=2, threads=128,
):  # fmt: skip
    """C = (A * SFA) @ (W * SFW).T, each scale for ``sf_size`` numbers of a row."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        SFA: T.Tensor((M, K // sf_size), scale_dtype),
        W: T.Tensor((N, K), dtype),
        SFW: T.Tensor((N, K // sf_size), scale_dtype),
        C: T.Tensor((M, N), out_dtype),
    ):
        """C = (A * SFA) @ (W * SFW).T, small floats in."""
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            As, Ws = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            a_scales = T.alloc_shared((bM, bK // sf_size), scale_dtype)
            w_scales = T.alloc_shared((bN, bK // sf_size), scale_dtype)
            acc = T.alloc_fragment((bM, bN), "float32")
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.copy(A[by * bM, ko * bK], As)
                T.copy(W[bx * bN, ko * bK], Ws)
                T.copy(SFA[by * bM, ko * bK // sf_size], a_scales)
                T.copy(SFW[bx * bN, ko * bK // sf_size], w_scales)
                T.gemm_blockscaled(As, Ws, acc, a_scales, w_scales, transpose_B=True, sf_size=sf_size)
            T.copy(acc, C[by * bM, bx * bN])

    return main


def matmul_blockscaled_reference(A, SFA, W, SFW):
    """NumPy twin of :func:`matmul_blockscaled`."""
    return _decoded(A, SFA) @ _decoded(W, SFW).T


def quantised(values, form):
    """Rows of numbers and their scales, as kernels take them, for ``values`` (rows, K).

    Scales of powers of two are the largest power in a group over that of the largest number (OCP
    specification, 6.3); others make the largest value of a group the largest number."""
    dtype, scale_dtype, size = form
    groups = f32(values).reshape(len(values), -1, size)
    most = np.abs(groups).max(axis=-1) + np.float32(2.0**-100)
    numbers = getattr(ml_dtypes, dtype)
    if scale_dtype == "float8_e8m0fnu":
        exponents = np.floor(np.log2(most)).astype(np.int32) - _LARGEST[dtype]
        held, scales = (exponents + 127).astype(np.uint8), np.exp2(exponents.astype(np.float32))
    else:
        held = (most / np.float32(ml_dtypes.finfo(numbers).max)).astype(getattr(ml_dtypes, scale_dtype))
        scales = f32(held)
    limit = np.float32(ml_dtypes.finfo(numbers).max)
    codes = np.clip(groups / scales[..., None], -limit, limit).astype(numbers).reshape(f32(values).shape)
    if dtype != "float4_e2m1fn":
        return codes, held
    bits = codes.view(np.uint8) & 15
    return bits[:, ::2] | bits[:, 1::2] << 4, held


def _decoded(numbers, scales):
    if numbers.dtype == np.uint8:
        halves = np.stack([numbers & 15, numbers >> 4], axis=-1).reshape(len(numbers), -1)
        numbers = halves.view(ml_dtypes.float4_e2m1fn)
    powers = scales.view(ml_dtypes.float8_e8m0fnu) if scales.dtype == np.uint8 else scales
    return f32(numbers) * np.repeat(f32(powers), numbers.shape[1] // scales.shape[1], axis=1)


def _inputs(dims, rng, form):
    """Normal operands whose rows have sizes of their own, so that no scale stands for another one."""
    sides = [
        rng.standard_normal((dims[rows], dims["K"])) * rng.uniform(0.2, 2, (dims[rows], 1)) for rows in "MN"
    ]
    return [each for side in sides for each in quantised(side * dims["K"] ** -0.25, form)]


def mxfp8_inputs(dims, rng):
    """Operands in mxfp8."""
    return _inputs(dims, rng, MXFP8)


def mxfp4_inputs(dims, rng):
    """Operands in mxfp4."""
    return _inputs(dims, rng, MXFP4)


def nvfp4_inputs(dims, rng):
    """Operands in nvfp4."""
    return _inputs(dims, rng, NVFP4)
