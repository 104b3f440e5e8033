"""Convolutions as matrix products over the columns of an image, in the factory form.

Images are stored (N, H, W, C), weights (F, R, S, C): channels last. A tile of the product is pixels by
filters; along K run the taps of the filter, each with all of its channels. Sums are float32.
"""

from __future__ import annotations

import itertools

import numpy as np
from tile_math import activation as activation_of
from tile_math import f32, gelu_reference, silu_reference

import tilec
import tilec.language as T


def extent(size, taps, stride, pad, dilation):
    """Places that a filter of ``taps`` taps finds along an axis of ``size`` pixels."""
    return (size + 2 * pad - dilation * (taps - 1) - 1) // stride + 1


@tilec.jit(out_idx=[-1])
def conv2d(
    N, H, W, C, F, R=3, stride=1, pad=1, dilation=1, activation="none", dtype="float16",
    bM=128, bN=128, bK=64, num_stages=4, threads=256,
):  # fmt: skip
    """Y = activation(conv(X, K) + bias) with square filters of ``R`` taps."""
    OH, OW = (extent(size, R, stride, pad, dilation) for size in (H, W))
    act = activation_of(activation)

    @T.prim_func
    def main(
        X: T.Tensor((N, H, W, C), dtype),
        K: T.Tensor((F, R, R, C), dtype),
        bias: T.Tensor((F,), dtype),
        Y: T.Tensor((N, OH, OW, F), dtype),
    ):
        """Y = activation(conv(X, K) + bias); X is (N, H, W, C), K is (F, R, R, C)."""
        with T.Kernel(T.ceildiv(F, bN), T.ceildiv(N * OH * OW, bM), threads=threads) as (bx, by):
            columns = T.alloc_shared((bM, bK), dtype)
            weights = T.alloc_shared((bN, bK), dtype)
            acc = T.alloc_fragment((bM, bN), "float32")
            filters = T.Tensor((F, R * R * C), dtype, K.data)
            T.clear(acc)
            for k in T.Pipelined(R * R * C // bK, num_stages=num_stages):
                T.c2d_im2col(X, columns, by, k, R, stride, dilation, pad)
                T.copy(filters[bx * bN, k * bK], weights)
                T.gemm(columns, weights, acc, transpose_B=True)
            for i, j in T.Parallel(bM, bN):
                line, x = (by * bM + i) // OW, (by * bM + i) % OW
                Y[line // OH, line % OH, x, bx * bN + j] = act(acc[i, j] + bias[bx * bN + j])

    return main


@tilec.jit(out_idx=[-1])
def conv1d(
    N, L, C, F, R=3, stride=1, pad=1, dilation=1, activation="none", dtype="float16",
    bM=128, bN=128, bK=64, num_stages=4, threads=256,
):  # fmt: skip
    """Y = activation(conv(X, K) + bias) along the middle axis, with filters of ``R`` taps."""
    OL = extent(L, R, stride, pad, dilation)
    act = activation_of(activation)

    @T.prim_func
    def main(
        X: T.Tensor((N, L, C), dtype),
        K: T.Tensor((F, R, C), dtype),
        bias: T.Tensor((F,), dtype),
        Y: T.Tensor((N, OL, F), dtype),
    ):
        """Y = activation(conv(X, K) + bias); X is (N, L, C), K is (F, R, C)."""
        with T.Kernel(T.ceildiv(F, bN), T.ceildiv(N * OL, bM), threads=threads) as (bx, by):
            columns = T.alloc_shared((bM, bK), dtype)
            weights = T.alloc_shared((bN, bK), dtype)
            acc = T.alloc_fragment((bM, bN), "float32")
            filters = T.Tensor((F, R * C), dtype, K.data)
            T.clear(acc)
            for k in T.Pipelined(R * C // bK, num_stages=num_stages):
                for p, q in T.Parallel(bM, bK):  # a read outside of X gives 0
                    place = by * bM + p
                    at = place % OL * stride + k * bK // C * dilation - pad
                    columns[p, q] = X[place // OL, at, k * bK % C + q]
                T.copy(filters[bx * bN, k * bK], weights)
                T.gemm(columns, weights, acc, transpose_B=True)
            for i, j in T.Parallel(bM, bN):
                place = by * bM + i
                Y[place // OL, place % OL, bx * bN + j] = act(acc[i, j] + bias[bx * bN + j])

    return main


def conv2d_reference(X, K, bias, stride=1, pad=1, dilation=1):
    """NumPy twin of :func:`conv2d` without activation."""
    image = np.pad(f32(X), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    taps = range(K.shape[1])
    rows, columns = (extent(size, len(taps), stride, pad, dilation) for size in X.shape[1:3])
    total = np.zeros((X.shape[0], rows, columns, K.shape[0]), np.float32) + f32(bias)
    for r, s in itertools.product(taps, taps):
        seen = image[:, r * dilation :, s * dilation :][:, ::stride, ::stride][:, :rows, :columns]
        total += seen @ f32(K[:, r, s]).T
    return total


def conv2d_down_reference(X, K, bias):
    """NumPy twin of :func:`conv2d` with stride 2."""
    return conv2d_reference(X, K, bias, stride=2)


def conv2d_silu_reference(X, K, bias, stride=1, pad=1, dilation=1):
    """NumPy twin of :func:`conv2d` with SiLU."""
    return silu_reference(conv2d_reference(X, K, bias, stride, pad, dilation))


def conv1d_reference(X, K, bias, stride=1, pad=1, dilation=1):
    """NumPy twin of :func:`conv1d` without activation."""
    line = np.pad(f32(X), ((0, 0), (pad, pad), (0, 0)))
    count = extent(X.shape[1], K.shape[1], stride, pad, dilation)
    total = np.zeros((X.shape[0], count, K.shape[0]), np.float32) + f32(bias)
    for r in range(K.shape[1]):
        total += line[:, r * dilation :][:, ::stride][:, :count] @ f32(K[:, r]).T
    return total


def conv1d_down_reference(X, K, bias):
    """NumPy twin of :func:`conv1d` with stride 2."""
    return conv1d_reference(X, K, bias, stride=2)


def conv1d_gelu_reference(X, K, bias, stride=1, pad=1, dilation=1):
    """NumPy twin of :func:`conv1d` with GELU."""
    return gelu_reference(conv1d_reference(X, K, bias, stride, pad, dilation))


def conv1d_down_gelu_reference(X, K, bias):
    """NumPy twin of :func:`conv1d` with stride 2 and GELU."""
    return conv1d_gelu_reference(X, K, bias, stride=2)
