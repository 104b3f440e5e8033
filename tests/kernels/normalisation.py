"""Norms over rows, groups and batches, with what stands around them: residuals, quantisation, rotations."""

from __future__ import annotations

import argparse

import numpy as np
from family_math import silu, wide

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1], pass_configs={"tl.disable_tma_lower": True})
def rms_norm_splitk(M, N, blk_m=4, blk_k=64):
    """Two walks over each row in chunks: squares, then the scaled row."""
    dtype = T.float

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, blk_m), threads=128) as bx:
            A_shared = T.alloc_shared((blk_m, blk_k), dtype)
            A_local = T.alloc_fragment((blk_m, blk_k), dtype)
            A_powsum = T.alloc_fragment((blk_m,), dtype)
            num_k_step = T.ceildiv(N, blk_k)
            T.fill(A_local, 0)
            for k in range(num_k_step):
                T.copy(A[bx * blk_m, k * blk_k], A_shared)
                for i, j in T.Parallel(blk_m, blk_k):
                    A_local[i, j] += A_shared[i, j] * A_shared[i, j]
            T.reduce_sum(A_local, A_powsum, dim=1)
            for i in T.Parallel(blk_m):
                A_powsum[i] = T.rsqrt(A_powsum[i] / N + 1e-12)
            for k in range(num_k_step):
                # reverse, better cache hit rate
                T.copy(A[bx * blk_m, (num_k_step - 1 - k) * blk_k], A_shared)
                for i, j in T.Parallel(blk_m, blk_k):
                    A_shared[i, j] *= A_powsum[i]
                T.copy(A_shared, B[bx * blk_m, (num_k_step - 1 - k) * blk_k])

    return main


@tilec.jit
def group_norm(X, G, Bt, groups: int = 4, eps: float = 1e-5, act: bool = True):
    """Channels-last images: mean and variance over pixels and channels of a group, then SiLU."""
    N, P, C = T.dynamic("N"), T.const("P"), T.const("C")
    X: T.Tensor[[N, P, C], T.float16]
    G: T.Tensor[[C], T.float32]
    Bt: T.Tensor[[C], T.float32]
    Y = T.empty((N, P, C), T.float16)
    assert C % groups == 0, f"{C} channels in {groups} groups"
    per = C // groups
    with T.Kernel(groups, N, threads=128) as (g, n):
        x = T.alloc_fragment((P, per), T.float32)
        d = T.alloc_fragment((P, per), T.float32)
        column, total = T.alloc_fragment((P,), T.float32), T.alloc_fragment((1,), T.float32)
        mean, scale = T.alloc_var(T.float32), T.alloc_var(T.float32)
        T.copy(X[n, :, g * per : (g + 1) * per], x)
        T.reduce_sum(x, column, dim=1)
        T.reduce_sum(column, total, dim=0)
        mean = total[0] / (P * per)
        for i, j in T.Parallel(P, per):
            d[i, j] = (x[i, j] - mean) * (x[i, j] - mean)
        T.reduce_sum(d, column, dim=1)
        T.reduce_sum(column, total, dim=0)
        scale = T.rsqrt(total[0] / (P * per) + eps)
        for i, j in T.Parallel(P, per):
            y = (x[i, j] - mean) * scale * G[g * per + j] + Bt[g * per + j]
            Y[n, i, g * per + j] = y / (1.0 + T.exp(-y)) if act else y
    return Y


@tilec.jit(out_idx=[2, 3])
def rms_norm_quant(N, group=32, rows=4, eps=1e-6, dtype="bfloat16"):
    """RMSNorm, then 8-bit floats with a scale per row and group of columns."""
    M = T.dynamic("M")
    fp8_max = 448.0

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        W: T.Tensor((N,), dtype),
        Y: T.Tensor((M, N), T.float8_e4m3fn),
        S: T.Tensor((M, N // group), "float32"),
    ):
        with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
            x, sq = T.alloc_fragment((rows, N), "float32"), T.alloc_fragment((rows, N), "float32")
            ss = T.alloc_fragment((rows,), "float32")
            staged = T.alloc_shared((rows, N), "float32")
            y = T.alloc_fragment((rows, N // group, group), "float32")
            amax, scale = (T.alloc_fragment((rows, N // group), "float32") for _ in range(2))
            T.copy(X[bx * rows : (bx + 1) * rows, :], x)
            for i, j in T.Parallel(rows, N):
                sq[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(sq, ss, dim=1)
            for i, j in T.Parallel(rows, N):
                staged[i, j] = x[i, j] * T.rsqrt(ss[i] / N + eps) * W[j]
            for i, g, j in T.Parallel(rows, N // group, group):
                y[i, g, j] = staged[i, g * group + j]
            T.reduce_absmax(y, amax, dim=2)
            for i, g in T.Parallel(rows, N // group):
                scale[i, g] = T.max(amax[i, g], 1e-4) / fp8_max
                if bx * rows + i < M:
                    S[bx * rows + i, g] = scale[i, g]
            for i, g, j in T.Parallel(rows, N // group, group):
                if bx * rows + i < M:
                    Y[bx * rows + i, g * group + j] = T.clamp(y[i, g, j] / scale[i, g], -fp8_max, fp8_max)

    return main


@tilec.jit(out_idx=[-3, -2, -1])
def layer_norm_bwd(M, N, rows=4, dtype="float32"):
    """dX of each row, and dG, dB as sums of blocks in a second launch."""
    blocks = tilec.cdiv(M, rows)

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        G: T.Tensor((N,), dtype),
        mean: T.Tensor((M,), "float32"),
        rstd: T.Tensor((M,), "float32"),
        dY: T.Tensor((M, N), dtype),
        dX: T.Tensor((M, N), dtype),
        dG: T.Tensor((N,), "float32"),
        dB: T.Tensor((N,), "float32"),
    ):
        part = T.alloc_global((2, blocks, N), "float32")
        with T.Kernel(blocks, threads=128) as bx:
            xh, dy, t = [T.alloc_fragment((rows, N), "float32") for _ in range(3)]
            c1, c2 = [T.alloc_fragment((rows,), "float32") for _ in range(2)]
            g, b = [T.alloc_fragment((N,), "float32") for _ in range(2)]
            T.copy(dY[bx * rows, 0], dy)
            for i, j in T.Parallel(rows, N):
                xh[i, j] = (X[bx * rows + i, j] - mean[bx * rows + i]) * rstd[bx * rows + i]
                t[i, j] = dy[i, j] * xh[i, j]
            T.reduce_sum(t, g, dim=0)
            T.reduce_sum(dy, b, dim=0)
            T.copy(g, part[0, bx, :])
            T.copy(b, part[1, bx, :])
            for i, j in T.Parallel(rows, N):
                dy[i, j] *= G[j]
                t[i, j] = dy[i, j] * xh[i, j]
            T.reduce_sum(dy, c1, dim=1)
            T.reduce_sum(t, c2, dim=1)
            for i, j in T.Parallel(rows, N):
                if bx * rows + i < M:
                    dX[bx * rows + i, j] = (dy[i, j] - (c1[i] + xh[i, j] * c2[i]) / N) * rstd[bx * rows + i]
        with T.Kernel(T.ceildiv(N, 128), threads=128) as bx:
            for j in T.Parallel(128):
                if bx * 128 + j < N:
                    g_sum, b_sum = T.alloc_var("float32"), T.alloc_var("float32")
                    g_sum = 0.0
                    b_sum = 0.0
                    for k in T.serial(blocks):
                        g_sum += part[0, k, bx * 128 + j]
                        b_sum += part[1, k, bx * 128 + j]
                    dG[bx * 128 + j] = g_sum
                    dB[bx * 128 + j] = b_sum

    return main


@tilec.jit
def qk_norm_rope(QKV, Wq, Wk, cos, sin, Hq: int = 4, Hk: int = 2, eps: float = 1e-6):
    """RMSNorm of each head of Q and K, then halves rotated; V is copied: three tensors of one."""
    M, D = T.dynamic("M"), T.const("D")
    half = T.const("half")
    H = Hq + 2 * Hk
    QKV: T.Tensor[[M, H, D], T.float16]
    Wq: T.Tensor[[D], T.float16]
    Wk: T.Tensor[[D], T.float16]
    cos: T.Tensor[[M, half], T.float32]
    sin: T.Tensor[[M, half], T.float32]
    Q = T.empty((M, Hq, D), T.float16)
    K = T.empty((M, Hk, D), T.float16)
    V = T.empty((M, Hk, D), T.float16)
    with T.Kernel(M, H, threads=64) as (m, h):
        x, sq = T.alloc_shared((D,), T.float32), T.alloc_fragment((D,), T.float32)
        ss = T.alloc_fragment((1,), T.float32)
        T.copy(QKV[m, h, :], x)
        if h >= Hq + Hk:
            T.copy(x, V[m, h - Hq - Hk, :])
        else:
            for d in T.Parallel(D):
                sq[d] = x[d] * x[d]
            T.reduce_sum(sq, ss, dim=0)
            for d in T.Parallel(D):
                x[d] = x[d] * T.rsqrt(ss[0] / D + eps) * (Wq[d] if h < Hq else Wk[d])
            for d in T.Parallel(half):
                a, b = x[d], x[d + half]
                x[d], x[d + half] = a * cos[m, d] - b * sin[m, d], b * cos[m, d] + a * sin[m, d]
            if h < Hq:
                T.copy(x, Q[m, h, :])
            else:
                T.copy(x, K[m, h - Hq, :])
    return Q, K, V


# ---- references and inputs ----


def rms_norm_splitk_reference(A):
    return A / np.sqrt((A.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-12)


def group_norm_reference(X, G, Bt, groups=4, eps=1e-5):
    x = wide(X).reshape(X.shape[0], X.shape[1], groups, -1)
    mean, var = x.mean((1, 3), keepdims=True), x.var((1, 3), keepdims=True)
    return silu(((x - mean) / np.sqrt(var + eps)).reshape(X.shape) * G + Bt)


def rms_norm_quant_reference(X, W, group=32, eps=1e-6):
    x = wide(X)
    y = x / np.sqrt((x**2).mean(1, keepdims=True) + eps) * wide(W)
    parts = y.reshape(len(y), -1, group)
    scale = np.maximum(np.abs(parts).max(-1), 1e-4) / 448.0
    return (parts / scale[..., None]).reshape(y.shape), scale


def layer_norm_bwd_reference(X, G, mean, rstd, dY):
    hat = (X - mean[:, None]) * rstd[:, None]
    d = dY * G
    dX = (d - d.mean(1, keepdims=True) - hat * (d * hat).mean(1, keepdims=True)) * rstd[:, None]
    return dX, (dY * hat).sum(0), dY.sum(0)


def layer_norm_bwd_inputs(dims, rng):
    shape = (dims["M"], dims["N"])
    x, dy = rng.standard_normal(shape) + 1, rng.standard_normal(shape)
    return [x, rng.standard_normal(shape[1]), x.mean(1), 1 / np.sqrt(x.var(1) + 1e-5), dy]


def qk_norm_rope_reference(QKV, Wq, Wk, cos, sin, Hq=4, Hk=2, eps=1e-6):
    x = wide(QKV)
    normed = x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)

    def turned(heads):
        a, b = np.split(heads, 2, -1)
        c, s = cos[:, None], sin[:, None]
        return np.concatenate([a * c - b * s, b * c + a * s], -1)

    q, k = turned(normed[:, :Hq] * wide(Wq)), turned(normed[:, Hq : Hq + Hk] * wide(Wk))
    return q, k, x[:, Hq + Hk :]


def qk_norm_rope_inputs(dims, rng, heads=8):
    M, D = dims["M"], dims["D"]
    turn = rng.uniform(0, 6, (M, D // 2))
    return [rng.standard_normal((M, heads, D)), *rng.uniform(0.5, 1.5, (2, D)), np.cos(turn), np.sin(turn)]


def main(argv=None):
    """RMSNorm in chunks beside torch."""
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--m", type=int, default=64)
    parser.add_argument("--n", type=int, default=256)
    args = parser.parse_args(argv)

    def ref_program(x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-12)

    kernel = tilec.compile(rms_norm_splitk.get_tir(args.m, args.n), out_idx=[-1])
    profiler = kernel.get_profiler()
    profiler.assert_allclose(ref_program, rtol=0.01, atol=0.01)
    print("All checks pass.")
    print(f"Ref: {profiler.do_bench(ref_program, warmup=1):.2f} ms")
    print(f"tilec: {profiler.do_bench(warmup=1):.2f} ms")


if __name__ == "__main__":
    main()
