"""Convolutions, channels last: as products over gathered patches, per channel, transposed, with state."""

from __future__ import annotations

import argparse

import numpy as np
from family_math import silu, wide

import tilec
import tilec.language as T


@tilec.jit(out_idx=[2])
def conv2d_im2col(
    N, C, H, W, F, K, S, D, P, block_M=32, block_N=32, block_K=16, num_stages=2, threads=128, dtype="float16"
):
    """Patches come from T.im2col, or from a loop that computes where each element lies."""
    accum_dtype = "float"
    KH, KW = K, K
    OH = (H + 2 * P - D * (K - 1) - 1) // S + 1
    OW = (W + 2 * P - D * (K - 1) - 1) // S + 1
    is_hopper = C % block_K == 0

    @T.prim_func
    def main(
        data: T.Tensor((N, H, W, C), dtype),
        kernel: T.Tensor((KH, KW, C, F), dtype),
        out: T.Tensor((N, OH, OW, F), dtype),
    ):
        with T.Kernel(T.ceildiv(F, block_N), T.ceildiv(N * OH * OW, block_M), threads=threads) as (bx, by):
            data_shared = T.alloc_shared((block_M, block_K), dtype)
            kernel_shared = T.alloc_shared((block_K, block_N), dtype)
            out_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            out_shared = T.alloc_shared((block_M, block_N), dtype)
            kernel_flat = T.Tensor((KH * KW * C, F), dtype, kernel.data)
            out_flat = T.Tensor((N * OH * OW, F), dtype, out.data)
            T.annotate_layout(
                {
                    out_shared: tilec.layout.make_swizzled_layout(out_shared),
                    data_shared: tilec.layout.make_swizzled_layout(data_shared),
                    kernel_shared: tilec.layout.make_swizzled_layout(kernel_shared),
                }
            )
            T.clear(out_local)
            for k_iter in T.Pipelined(T.ceildiv(KH * KW * C, block_K), num_stages=num_stages):
                if is_hopper:
                    T.c2d_im2col(data, data_shared, by, k_iter, KH, S, D, P)
                else:
                    for i, j in T.Parallel(block_M, block_K):
                        k = k_iter * block_K + j
                        m = by * block_M + i
                        access_h = m % (OH * OW) // OW * S + k // (KW * C) * D - P
                        access_w = m % OW * S + k // C % KW * D - P
                        in_bound = (access_h >= 0) and (access_w >= 0) and (access_h < H) and (access_w < W)
                        data_shared[i, j] = T.if_then_else(
                            in_bound, data[m // (OH * OW), access_h, access_w, k % C], 0
                        )
                T.copy(kernel_flat[k_iter * block_K, bx * block_N], kernel_shared)
                T.gemm(data_shared, kernel_shared, out_local)
            T.copy(out_local, out_shared)
            T.copy(out_shared, out_flat[by * block_M, bx * block_N])

    return main


@tilec.jit
def causal_conv1d(X, Wt, Bias, State, blk: int = 32, rows: int = 16, use_silu: bool = True):
    """Depthwise over time: the first inputs see State, whose new value comes out, too."""
    B, L, D, K = T.const("B L D K")
    X: T.Tensor[[B, L, D], T.bfloat16]
    Wt: T.Tensor[[D, K], T.float32]
    Bias: T.Tensor[[D], T.float32]
    State: T.Tensor[[B, K - 1, D], T.bfloat16]
    Y = T.empty((B, L, D), T.bfloat16)
    Last = T.empty((B, K - 1, D), T.bfloat16)
    with T.Kernel(T.ceildiv(L, rows), T.ceildiv(D, blk), B, threads=128) as (bl, bd, b):
        x = T.alloc_shared((rows + K - 1, blk), T.float32)
        acc = T.alloc_fragment((rows, blk), T.float32)
        for i, j in T.Parallel(rows + K - 1, blk):
            t, d = bl * rows + i - (K - 1), bd * blk + j
            x[i, j] = X[b, t, d] if t >= 0 else State[b, t + K - 1, d]
        for i, j in T.Parallel(rows, blk):
            acc[i, j] = Bias[bd * blk + j]
        for k in T.serial(K):
            for i, j in T.Parallel(rows, blk):
                acc[i, j] += x[i + k, j] * Wt[bd * blk + j, k]
        for i, j in T.Parallel(rows, blk):
            y = acc[i, j] * T.sigmoid(acc[i, j]) if use_silu else acc[i, j]
            if bl * rows + i < L:
                Y[b, bl * rows + i, bd * blk + j] = y
        if bl == T.ceildiv(L, rows) - 1:
            for i, j in T.Parallel(K - 1, blk):
                Last[b, i, bd * blk + j] = x[L - bl * rows + i, j]
    return Y, Last


@tilec.jit(out_idx=[-1])
def depthwise2d(N, H, W, C, K=3, stride=1, pad=1, tile=4, bC=32, dtype="float16"):
    """A filter per channel; a block computes a square of the output from the patch around it."""
    OH, OW = (H + 2 * pad - K) // stride + 1, (W + 2 * pad - K) // stride + 1
    patch = (tile - 1) * stride + K

    @T.prim_func
    def main(
        X: T.Tensor((N, H, W, C), dtype),
        F: T.Tensor((K, K, C), dtype),
        Y: T.Tensor((N, OH, OW, C), dtype),
    ):
        with T.Kernel(T.ceildiv(OH, tile) * T.ceildiv(OW, tile), T.ceildiv(C, bC), N, threads=128) as (
            bx,
            bc,
            n,
        ):
            oh, ow = bx // T.ceildiv(OW, tile) * tile, bx % T.ceildiv(OW, tile) * tile
            x = T.alloc_shared((patch, patch, bC), dtype)
            acc = T.alloc_fragment((tile, tile, bC), "float32")
            for i, j, c in T.Parallel(patch, patch, bC):
                h, w = oh * stride + i - pad, ow * stride + j - pad
                x[i, j, c] = T.if_then_else(
                    (h >= 0) & (h < H) & (w >= 0) & (w < W), X[n, h, w, bc * bC + c], 0
                )
            T.clear(acc)
            for kh, kw in T.grid(K, K):
                for i, j, c in T.Parallel(tile, tile, bC):
                    acc[i, j, c] += x[i * stride + kh, j * stride + kw, c] * F[kh, kw, bc * bC + c]
            T.copy(acc, Y[n, oh : oh + tile, ow : ow + tile, bc * bC : (bc + 1) * bC])

    return main


@tilec.jit(out_idx=[-1])
def transposed2d(N, H, W, C, F, K=4, stride=2, pad=1, block_M=32, block_N=32, block_K=32, dtype="float16"):
    """Every output pixel gathers the inputs that reach it; taps between two inputs multiply zeros."""
    OH, OW = (H - 1) * stride - 2 * pad + K, (W - 1) * stride - 2 * pad + K

    @T.prim_func
    def main(
        X: T.Tensor((N, H, W, C), dtype),
        Wt: T.Tensor((K, K, C, F), dtype),
        Y: T.Tensor((N, OH, OW, F), dtype),
    ):
        with T.Kernel(T.ceildiv(F, block_N), T.ceildiv(N * OH * OW, block_M), threads=128) as (bx, by):
            x_s, w_s = T.alloc_shared((block_M, block_K), dtype), T.alloc_shared((block_K, block_N), dtype)
            acc = T.alloc_fragment((block_M, block_N), "float")
            y = T.Tensor((N * OH * OW, F), dtype, Y.data)
            T.clear(acc)
            for kh in T.serial(K):
                for kw in T.serial(K):
                    for c in T.Pipelined(T.ceildiv(C, block_K), num_stages=2):
                        for i, j in T.Parallel(block_M, block_K):
                            m = by * block_M + i
                            top = m % (OH * OW) // OW + pad - kh
                            left = m % OW + pad - kw
                            h, w = T.floordiv(top, stride), T.floordiv(left, stride)
                            hit = (T.floormod(top, stride) == 0) & (T.floormod(left, stride) == 0)
                            inside = (h >= 0) & (h < H) & (w >= 0) & (w < W) & (c * block_K + j < C)
                            x_s[i, j] = T.if_then_else(
                                hit & inside, X[m // (OH * OW), h, w, c * block_K + j], 0
                            )
                        T.copy(
                            Wt[kh, kw, c * block_K : (c + 1) * block_K, bx * block_N : (bx + 1) * block_N],
                            w_s,
                        )
                        T.gemm(x_s, w_s, acc)
            T.copy(acc, y[by * block_M, bx * block_N])

    return main


@tilec.jit(out_idx=[-1], pass_configs={tilec.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True})
def conv1d_shifted(C, F, K=3, dilation=2, bL=32, bF=32, bC=32, dtype="bfloat16"):
    """One product per tap over rows shifted by it; length and batch are known when it is called."""
    batch, length = T.dynamic("batch"), T.dynamic("length")
    half = dilation * (K - 1) // 2

    @T.prim_func
    def main(
        X: T.Tensor((batch, length, C), dtype),
        Wt: T.Tensor((K, C, F), dtype),
        Bias: T.Tensor((F,), "float32"),
        Y: T.Tensor((batch, length, F), dtype),
    ):
        with T.Kernel(T.ceildiv(F, bF), T.ceildiv(length, bL), batch, threads=128) as (bf, bl, b):
            x, w = T.alloc_shared((bL, bC), dtype), T.alloc_shared((bC, bF), dtype)
            acc = T.alloc_fragment((bL, bF), "float32")
            for i, j in T.Parallel(bL, bF):
                acc[i, j] = Bias[bf * bF + j]
            for t in T.Pipelined(K * T.ceildiv(C, bC), num_stages=2):
                k, c = t // T.ceildiv(C, bC), t % T.ceildiv(C, bC)
                first = bl * bL + k * dilation - half
                T.copy(X[b, first : first + bL, c * bC : (c + 1) * bC], x)
                T.copy(Wt[k, c * bC : (c + 1) * bC, bf * bF : (bf + 1) * bF], w)
                T.gemm(x, w, acc)
            T.copy(acc, Y[b, bl * bL : (bl + 1) * bL, bf * bF : (bf + 1) * bF])

    return main


# ---- references and inputs ----


def _correlate(x, weights, stride, pad, dilation):
    """x (N, H, W, C), weights (K, K, C, F)."""
    K = weights.shape[0]
    x = np.pad(wide(x), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    span = dilation * (K - 1) + 1
    windows = np.lib.stride_tricks.sliding_window_view(x, (span, span), (1, 2))
    taps = windows[:, ::stride, ::stride, :, ::dilation, ::dilation]
    return np.einsum("nhwcij,ijcf->nhwf", taps, wide(weights))


def conv2d_im2col_reference(data, kernel):
    return _correlate(data, kernel, 1, 1, 1)


def conv2d_strided_reference(data, kernel):
    return _correlate(data, kernel, 2, 2, 2)


def causal_conv1d_reference(X, Wt, Bias, State):
    x = np.concatenate([wide(State), wide(X)], 1)
    K, L = Wt.shape[1], X.shape[1]
    out = Bias + sum(x[:, k : k + L] * Wt[:, k] for k in range(K))
    return silu(out), x[:, L:]


def depthwise2d_reference(X, F):
    per_channel = [_correlate(X[..., c : c + 1], F[..., c : c + 1, None], 1, 1, 1) for c in range(F.shape[2])]
    return np.concatenate(per_channel, -1)


def transposed2d_reference(X, Wt, stride=2, pad=1):
    N, H, W, _ = X.shape
    K, F = Wt.shape[0], Wt.shape[3]
    out = np.zeros((N, (H - 1) * stride + K, (W - 1) * stride + K, F), np.float32)
    for kh, kw in np.ndindex(K, K):
        part = wide(X) @ wide(Wt[kh, kw])
        out[:, kh : kh + H * stride : stride, kw : kw + W * stride : stride][:, :H, :W] += part
    return out[:, pad : out.shape[1] - pad, pad : out.shape[2] - pad]


def conv1d_shifted_reference(X, Wt, Bias, dilation=2):
    K, L = Wt.shape[0], X.shape[1]
    half = dilation * (K - 1) // 2
    x = np.pad(wide(X), ((0, 0), (half, half), (0, 0)))
    return Bias + sum(x[:, k * dilation : k * dilation + L] @ wide(Wt[k]) for k in range(K))


def main(argv=None):
    """Convolution beside torch."""
    import torch

    parser = argparse.ArgumentParser()
    for name, value in (
        ("n", 2),
        ("c", 32),
        ("h", 12),
        ("w", 10),
        ("f", 48),
        ("k", 3),
        ("s", 1),
        ("d", 1),
        ("p", 1),
    ):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args(argv)
    N, C, H, W, F, K, S, D, P = args.n, args.c, args.h, args.w, args.f, args.k, args.s, args.d, args.p
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a = torch.randn(N, H, W, C, device=device).half()
    b = torch.randn(K, K, C, F, device=device).half()

    def ref_program(A, B):
        A = A.permute(0, 3, 1, 2).float()
        B = B.permute(3, 2, 0, 1).float()
        return torch.conv2d(A, B, stride=S, padding=P, dilation=D).permute(0, 2, 3, 1)

    kernel = conv2d_im2col(N, C, H, W, F, K, S, D, P)
    torch.testing.assert_close(kernel(a, b).float(), ref_program(a, b), rtol=1e-2, atol=5e-2)
    print("All checks passed.")


if __name__ == "__main__":
    main()
