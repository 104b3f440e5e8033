"""Kernels whose blocks go over their data by serial loops, and what torch computes in their place."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

import tilec
import tilec.language as T


class Case(NamedTuple):
    """A call of a kernel, torch's words for it, and the tensors whose bytes it has to move."""

    run: Callable[[], Any]
    reference: Callable[[], Any]
    moved: tuple[torch.Tensor, ...]


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


@tilec.jit(out_idx=[-2, -1])
def _norm_gradient(M, N, rows=128, columns=64, dtype="bfloat16"):
    @T.prim_func
    def main(
        G: T.Tensor((M, N), dtype),
        X: T.Tensor((M, N), dtype),
        mean: T.Tensor((M,), "float32"),
        rstd: T.Tensor((M,), "float32"),
        gain: T.Tensor((N,), "float32"),
        bias: T.Tensor((N,), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, columns), threads=256) as bx:
            g, x = (T.alloc_fragment((rows, columns), "float32") for _ in range(2))
            w, b = (T.alloc_fragment((columns,), "float32") for _ in range(2))
            T.clear(w)
            T.clear(b)
            for m in T.Pipelined(T.ceildiv(M, rows), num_stages=2):
                T.copy(G[m * rows, bx * columns], g)
                T.copy(X[m * rows, bx * columns], x)
                for i, j in T.Parallel(rows, columns):
                    x[i, j] = g[i, j] * (x[i, j] - mean[m * rows + i]) * rstd[m * rows + i]
                T.reduce_sum(x, w, dim=0, clear=False)
                T.reduce_sum(g, b, dim=0, clear=False)
            T.copy(w, gain[bx * columns])
            T.copy(b, bias[bx * columns])

    return main


def norm_gradient() -> Case:
    """Gradients of LayerNorm's gain and bias, 16384 x 4096."""
    g, x = (_random(16384, 4096, dtype=torch.bfloat16) for _ in range(2))
    mean, rstd = _random(16384), _random(16384)
    kernel = _norm_gradient(16384, 4096)

    def reference() -> list[torch.Tensor]:
        return [(g.float() * (x.float() - mean[:, None]) * rstd[:, None]).sum(0), g.float().sum(0)]

    return Case(lambda: kernel(g, x, mean, rstd), reference, (g, x))


@tilec.jit(out_idx=[-1])
def _scan(B, L, D, N, channels=64):
    @T.prim_func
    def main(
        U: T.Tensor((B, L, D), "float32"),
        step: T.Tensor((B, L, D), "float32"),
        A: T.Tensor((D, N), "float32"),
        Bm: T.Tensor((B, L, N), "float32"),
        Cm: T.Tensor((B, L, N), "float32"),
        Y: T.Tensor((B, L, D), "float32"),
    ):
        with T.Kernel(T.ceildiv(D, channels), B, threads=channels) as (bd, b):
            h, p = (T.alloc_fragment((channels, N), "float32") for _ in range(2))
            y = T.alloc_fragment((channels,), "float32")
            T.clear(h)
            for t in T.serial(L):
                for d, n in T.Parallel(channels, N):
                    dt = step[b, t, bd * channels + d]
                    grown = dt * U[b, t, bd * channels + d] * Bm[b, t, n]
                    h[d, n] = h[d, n] * T.exp(dt * A[bd * channels + d, n]) + grown
                    p[d, n] = h[d, n] * Cm[b, t, n]
                T.reduce_sum(p, y, dim=1)
                for d in T.Parallel(channels):
                    Y[b, t, bd * channels + d] = y[d]

    return main


def selective_scan() -> Case:
    """A state space scan, step by step: 4 x 2048 steps of 4096 channels, 16 states each."""
    B, L, D, N = 4, 2048, 4096, 16
    u, step = _random(B, L, D), _random(B, L, D).abs() * 0.1
    a, bm, cm = -_random(D, N).abs(), _random(B, L, N), _random(B, L, N)
    kernel = _scan(B, L, D, N)

    def reference() -> torch.Tensor:
        h, found = torch.zeros(B, D, N, device="cuda"), []
        for t in range(L):
            grown = (step[:, t] * u[:, t])[..., None] * bm[:, t, None, :]
            h = h * torch.exp(step[:, t, :, None] * a) + grown
            found.append((h * cm[:, t, None, :]).sum(-1))
        return torch.stack(found, 1)

    return Case(lambda: kernel(u, step, a, bm, cm), reference, (u, step, u))


@tilec.jit(out_idx=[-1])
def _log_sums(M, N, rows=4, block=512, dtype="bfloat16"):
    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
            x = T.alloc_fragment((rows, block), "float32")
            high, before, factor, part, total = (T.alloc_fragment((rows,), "float32") for _ in range(5))
            T.fill(high, -T.infinity("float32"))
            T.fill(total, 0)
            for b in T.Pipelined(N // block, num_stages=2):
                T.copy(X[bx * rows, b * block], x)
                T.copy(high, before)
                T.reduce_max(x, high, dim=1, clear=False)
                for i in T.Parallel(rows):
                    factor[i] = T.exp(before[i] - high[i])
                for i, j in T.Parallel(rows, block):
                    x[i, j] = T.exp(x[i, j] - high[i])
                T.reduce_sum(x, part, dim=1)
                for i in T.Parallel(rows):
                    total[i] = total[i] * factor[i] + part[i]
            for i in T.Parallel(rows):
                Y[bx * rows + i] = T.log(total[i]) + high[i]

    return main


def log_sums() -> Case:
    """Logarithms of sums of exponentials, online, 8192 x 32768."""
    x, kernel = _random(8192, 32768, dtype=torch.bfloat16), _log_sums(8192, 32768)
    return Case(lambda: kernel(x), lambda: x.float().logsumexp(-1), (x,))


@tilec.jit(out_idx=[-1])
def _means(B, S, D, rows=32, columns=128, dtype="float16"):
    @T.prim_func
    def main(X: T.Tensor((B, S, D), dtype), lengths: T.Tensor((B,), "int32"), Y: T.Tensor((B, D), dtype)):
        with T.Kernel(T.ceildiv(D, columns), B, threads=128) as (bd, b):
            x = T.alloc_fragment((rows, columns), "float32")
            total = T.alloc_fragment((columns,), "float32")
            T.clear(total)
            for t in T.serial(T.ceildiv(lengths[b], rows)):
                for i, d in T.Parallel(rows, columns):
                    value = X[b, t * rows + i, bd * columns + d].astype("float32")
                    x[i, d] = T.if_then_else(t * rows + i < lengths[b], value, 0.0)
                T.reduce_sum(x, total, dim=0, clear=False)
            for d in T.Parallel(columns):
                Y[b, bd * columns + d] = total[d] / lengths[b]

    return main


def means() -> Case:
    """Means over 64 sequences of up to 2048 tokens, 1024 channels."""
    x = _random(64, 2048, 1024, dtype=torch.float16)
    lengths = torch.randint(1024, 2049, (64,), device="cuda", dtype=torch.int32)
    mask, kernel = torch.arange(2048, device="cuda")[None] < lengths[:, None], _means(64, 2048, 1024)

    def reference() -> torch.Tensor:
        return ((x.float() * mask[..., None]).sum(1) / lengths[:, None]).half()

    return Case(lambda: kernel(x, lengths), reference, (x[mask],))


@tilec.jit(out_idx=[-1])
def _group_norm(N, S, C, groups, rows=256, dtype="float16"):
    width = C // groups

    @T.prim_func
    def main(
        X: T.Tensor((N, S, C), dtype),
        gain: T.Tensor((C,), "float32"),
        bias: T.Tensor((C,), "float32"),
        Y: T.Tensor((N, S, C), dtype),
    ):
        with T.Kernel(groups, N, threads=256) as (g, n):
            x, q = (T.alloc_fragment((rows, width), "float32") for _ in range(2))
            s, s2 = (T.alloc_fragment((width,), "float32") for _ in range(2))
            t, t2 = (T.alloc_fragment((1,), "float32") for _ in range(2))
            T.clear(s)
            T.clear(s2)
            for r in T.serial(S // rows):
                T.copy(X[n, r * rows : (r + 1) * rows, g * width : (g + 1) * width], x)
                for i, j in T.Parallel(rows, width):
                    q[i, j] = x[i, j] * x[i, j]
                T.reduce_sum(x, s, dim=0, clear=False)
                T.reduce_sum(q, s2, dim=0, clear=False)
            T.reduce_sum(s, t, dim=0)
            T.reduce_sum(s2, t2, dim=0)
            mean = t[0] / (S * width)
            rstd = T.rsqrt(t2[0] / (S * width) - mean * mean + 1e-5)
            for r in T.serial(S // rows):
                for i, j in T.Parallel(rows, width):
                    even = (X[n, r * rows + i, g * width + j].astype("float32") - mean) * rstd
                    Y[n, r * rows + i, g * width + j] = even * gain[g * width + j] + bias[g * width + j]

    return main


def group_norm() -> Case:
    """GroupNorm of 8 images of 64 x 64, 512 channels last in 32 groups."""
    x, gain, bias = _random(8, 4096, 512, dtype=torch.float16), _random(512), _random(512)
    kernel = _group_norm(8, 4096, 512, 32)

    def reference() -> torch.Tensor:
        made = torch.nn.functional.group_norm(x.float().transpose(1, 2), 32, gain, bias, 1e-5)
        return made.transpose(1, 2).half()

    return Case(lambda: kernel(x, gain, bias), reference, (x, x))


@tilec.jit(out_idx=[-1])
def _taps(B, D, L, W, block=1024, dtype="bfloat16"):
    @T.prim_func
    def main(X: T.Tensor((B, D, L), dtype), taps: T.Tensor((D, W), "float32"), Y: T.Tensor((B, D, L), dtype)):
        with T.Kernel(T.ceildiv(L, block), D, B, threads=128) as (bl, d, b):
            total = T.alloc_fragment((block,), "float32")
            T.clear(total)
            for w in T.unroll(W):
                for i in T.Parallel(block):
                    if bl * block + i - (W - 1) + w >= 0:
                        total[i] += X[b, d, bl * block + i - (W - 1) + w].astype("float32") * taps[d, w]
            for i in T.Parallel(block):
                Y[b, d, bl * block + i] = total[i]

    return main


def taps() -> Case:
    """A depthwise causal convolution of four taps, 8 x 4096 channels of 4096 steps."""
    x, weights, kernel = (
        _random(8, 4096, 4096, dtype=torch.bfloat16),
        _random(4096, 4),
        _taps(8, 4096, 4096, 4),
    )

    def reference() -> torch.Tensor:
        made = torch.nn.functional.conv1d(x.float(), weights[:, None], padding=3, groups=4096)
        return made[..., :4096].bfloat16()

    return Case(lambda: kernel(x, weights), reference, (x, x))


@tilec.jit(out_idx=[-1])
def _attention(B, H, S, D, rows=128, keys=128, dtype="float16"):
    scale = D**-0.5 * 1.44269504

    @T.prim_func
    def main(
        Q: T.Tensor((B, H, S, D), dtype),
        K: T.Tensor((B, H, S, D), dtype),
        V: T.Tensor((B, H, S, D), dtype),
        out: T.Tensor((B, H, S, D), dtype),
    ):
        with T.Kernel(T.ceildiv(S, rows), H, B, threads=256) as (bx, h, b):
            q = T.alloc_shared((rows, D), dtype)
            k, v = (T.alloc_shared((keys, D), dtype) for _ in range(2))
            s, p = T.alloc_fragment((rows, keys), "float32"), T.alloc_fragment((rows, keys), dtype)
            o = T.alloc_fragment((rows, D), "float32")
            high, before, factor, part, total = (T.alloc_fragment((rows,), "float32") for _ in range(5))
            T.copy(Q[b, h, bx * rows : (bx + 1) * rows, :], q)
            T.fill(o, 0)
            T.fill(total, 0)
            T.fill(high, -T.infinity("float32"))
            for t in T.Pipelined(S // keys, num_stages=2):
                T.copy(K[b, h, t * keys : (t + 1) * keys, :], k)
                T.clear(s)
                T.gemm(q, k, s, transpose_B=True)
                T.copy(high, before)
                T.reduce_max(s, high, dim=1, clear=False)
                for i in T.Parallel(rows):
                    factor[i] = T.exp2(before[i] * scale - high[i] * scale)
                for i, j in T.Parallel(rows, keys):
                    s[i, j] = T.exp2(s[i, j] * scale - high[i] * scale)
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(rows):
                    total[i] = total[i] * factor[i] + part[i]
                T.copy(s, p)
                for i, j in T.Parallel(rows, D):
                    o[i, j] *= factor[i]
                T.copy(V[b, h, t * keys : (t + 1) * keys, :], v)
                T.gemm(p, v, o)
            for i, j in T.Parallel(rows, D):
                o[i, j] /= total[i]
            T.copy(o, out[b, h, bx * rows : (bx + 1) * rows, :])

    return main


def _odd_heads(size: int, keys: int) -> Case:
    q, k, v = (_random(4, 16, 2048, size, dtype=torch.float16) for _ in range(3))
    kernel = _attention(4, 16, 2048, size, keys=keys)
    attention = torch.nn.functional.scaled_dot_product_attention
    return Case(lambda: kernel(q, k, v), lambda: attention(q, k, v), (q, q, q, q))


def heads_of_72() -> Case:
    """Attention of 4 x 16 heads of 72 channels, 2048 queries and keys."""
    return _odd_heads(72, 128)


def heads_of_40() -> Case:
    """The same of 40 channels."""
    return _odd_heads(40, 64)


def heads_of_104() -> Case:
    """The same of 104 channels."""
    return _odd_heads(104, 64)


@tilec.jit(out_idx=[-1])
def _taps_of_columns(B, L, D, count, rows=64, columns=128, dtype="bfloat16"):
    @T.prim_func
    def main(
        X: T.Tensor((B, L, D), dtype), W: T.Tensor((D, count), "float32"), Y: T.Tensor((B, L, D), dtype)
    ):
        with T.Kernel(T.ceildiv(D, columns), T.ceildiv(L, rows), B, threads=256) as (bd, bl, b):
            total = T.alloc_fragment((rows, columns), "float32")
            T.clear(total)
            for w in T.unroll(count):
                for i, j in T.Parallel(rows, columns):
                    at = bl * rows + i - (count - 1) + w
                    if at >= 0:
                        total[i, j] += X[b, at, bd * columns + j].astype("float32") * W[bd * columns + j, w]
            T.copy(total, Y[b, bl * rows : (bl + 1) * rows, bd * columns : (bd + 1) * columns])

    return main


def taps_of_columns() -> Case:
    """A causal convolution of each of 4096 channels, which are last, by four taps, 8 x 4096 steps."""
    x, w = _random(8, 4096, 4096, dtype=torch.bfloat16), _random(4096, 4)
    kernel = _taps_of_columns(8, 4096, 4096, 4)

    def reference() -> torch.Tensor:
        turned = x.float().transpose(1, 2)
        found = torch.nn.functional.conv1d(turned, w[:, None], padding=3, groups=4096)[..., :4096]
        return found.transpose(1, 2).bfloat16()

    return Case(lambda: kernel(x, w), reference, (x, x))


@tilec.jit(out_idx=[-1])
def _hadamard(M, D, rows=32, dtype="bfloat16"):
    @T.prim_func
    def main(X: T.Tensor((M, D), dtype), Y: T.Tensor((M, D), dtype)):
        with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
            old, new = (T.alloc_shared((rows, D), "float32") for _ in range(2))
            T.copy(X[bx * rows, 0], old)
            for s in T.unroll(D.bit_length() - 1):
                for i, j in T.Parallel(rows, D):
                    other = old[i, j ^ (1 << s)]
                    new[i, j] = T.if_then_else((j >> s) & 1 == 0, old[i, j] + other, other - old[i, j])
                T.copy(new, old)
            T.copy(old, Y[bx * rows, 0])

    return main


def hadamard() -> Case:
    """The Hadamard transform of 524288 rows of 128, by steps over shared tiles."""
    x = _random(1 << 19, 128, dtype=torch.bfloat16)
    matrix = torch.ones(1, 1, device="cuda")
    while len(matrix) < x.shape[1]:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    kernel = _hadamard(*x.shape)
    return Case(lambda: kernel(x), lambda: (x.float() @ matrix).bfloat16(), (x, x))


@tilec.jit(out_idx=[-1])
def _bitonic(M, N, threads=256):
    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=threads) as bx:
            s = T.alloc_shared((N,), "float32")
            T.copy(X[bx, 0:N], s)
            for p in T.serial(N.bit_length() - 1):
                for q in T.serial(p + 1):
                    for t in T.Parallel(N // 2):
                        apart = 1 << (p - q)
                        i = t // apart * 2 * apart + t % apart
                        a = s[i]
                        b = s[i + apart]
                        rises = ((i >> (p + 1)) & 1) == 0
                        s[i] = T.if_then_else((a > b) == rises, b, a)
                        s[i + apart] = T.if_then_else((a > b) == rises, a, b)
            T.copy(s, Y[bx, 0:N])

    return main


def bitonic_sort() -> Case:
    """16384 rows of 1024 numbers sorted in shared memory."""
    x = _random(16384, 1024)
    kernel = _bitonic(*x.shape)
    return Case(lambda: kernel(x), lambda: x.sort(-1)[0], (x, x))


@tilec.jit(out_idx=[-1])
def _convolution(N, H, W, C, F, side=7, stride=2, pad=3, bM=128, bK=64, dtype="float16"):
    rows, columns = ((size + 2 * pad - side) // stride + 1 for size in (H, W))
    K = side * side * C

    @T.prim_func
    def main(
        X: T.Tensor((N, H, W, C), dtype),
        kernel: T.Tensor((side, side, C, F), dtype),
        Y: T.Tensor((N, rows, columns, F), dtype),
    ):
        with T.Kernel(T.ceildiv(N * rows * columns, bM), threads=128) as bx:
            a, b = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bK, F), dtype)
            c = T.alloc_fragment((bM, F), "float32")
            weights = T.Tensor((K, F), dtype, kernel.data)
            found = T.Tensor((N * rows * columns, F), dtype, Y.data)
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=2):
                for i, j in T.Parallel(bM, bK):
                    k, m = ko * bK + j, bx * bM + i
                    h = m % (rows * columns) // columns * stride + k // (side * C) - pad
                    w = m % columns * stride + k // C % side - pad
                    inside = (h >= 0) & (h < H) & (w >= 0) & (w < W) & (k < K)
                    a[i, j] = T.if_then_else(inside, X[m // (rows * columns), h, w, k % C], 0)
                T.copy(weights[ko * bK, 0], b)
                T.gemm(a, b, c)
            T.copy(c, found[bx * bM, 0])

    return main


def first_convolution() -> Case:
    """A 7 x 7 convolution of stride 2 over three channels, 64 images of 224 x 224."""
    x, w = _random(64, 224, 224, 3, dtype=torch.float16), _random(7, 7, 3, 64, dtype=torch.float16) * 0.1
    kernel = _convolution(64, 224, 224, 3, 64)
    planes, filters = x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1)

    def reference() -> torch.Tensor:
        return torch.nn.functional.conv2d(planes, filters, stride=2, padding=3).permute(0, 2, 3, 1)

    return Case(lambda: kernel(x, w), reference, (x, reference()))


@tilec.jit(out_idx=[-1])
def _sampled(N, C, H, W, block=128):
    @T.prim_func
    def main(
        X: T.Tensor((N, C, H, W), "float32"),
        grid: T.Tensor((N, H, W, 2), "float32"),
        Y: T.Tensor((N, C, H, W), "float32"),
    ):
        with T.Kernel(T.ceildiv(H * W, block), C, N, threads=128) as (bp, c, n):
            for i in T.Parallel(block):
                row, column = (bp * block + i) // W, (bp * block + i) % W
                if bp * block + i < H * W:
                    across = ((grid[n, row, column, 0] + 1) * W - 1) * 0.5
                    down = ((grid[n, row, column, 1] + 1) * H - 1) * 0.5
                    total = T.alloc_var("float32", 0.0)
                    for dy, dx in T.grid(2, 2):
                        y = T.cast(T.floor(down), "int32") + dy
                        x = T.cast(T.floor(across), "int32") + dx
                        inside = (y >= 0) & (y < H) & (x >= 0) & (x < W)
                        share = (1 - T.abs(down - y)) * (1 - T.abs(across - x))
                        total += T.if_then_else(inside, X[n, c, y, x], 0.0) * share
                    Y[n, c, row, column] = total

    return main


def sampled() -> Case:
    """Images of 64 channels read between their pixels, 8 of 128 x 128, zeros around them."""
    x, grid = _random(8, 64, 128, 128), torch.rand(8, 128, 128, 2, device="cuda") * 2.2 - 1.1
    kernel = _sampled(*x.shape)

    def reference() -> torch.Tensor:
        return torch.nn.functional.grid_sample(x, grid, align_corners=False)

    return Case(lambda: kernel(x, grid), reference, (x, x))


@tilec.jit(out_idx=[-1])
def _few_bits(M, N, K, bits, tile=128, threads=256):
    count = 8 // bits

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "int8"), B: T.Tensor((N, K // count), "uint8"), C: T.Tensor((M, N), "int32")
    ):
        with T.Kernel(T.ceildiv(N, tile), T.ceildiv(M, tile), threads=threads) as (bx, by):
            a, b = T.alloc_shared((tile, tile), "int8"), T.alloc_shared((tile, tile // count), "uint8")
            held, wide = T.alloc_fragment(b.shape, "uint8"), T.alloc_fragment((tile, tile), "int8")
            weights, c = T.alloc_shared((tile, tile), "int8"), T.alloc_fragment((tile, tile), "int32")
            T.clear(c)
            for k in T.Pipelined(K // tile, num_stages=3):
                T.copy(A[by * tile, k * tile], a)
                T.copy(B[bx * tile, k * tile // count], b)
                T.copy(b, held)
                for i, j in T.Parallel(tile, tile):
                    field = (held[i, j // count] >> T.cast(j % count * bits, "uint8")) & T.uint8(2**bits - 1)
                    wide[i, j] = T.reinterpret("int8", field << T.uint8(8 - bits)) >> T.int8(8 - bits)
                T.copy(wide, weights)
                T.gemm(a, weights, c, transpose_B=True)
            T.copy(c, C[by * tile, bx * tile])

    return main


def _of_few_bits(bits: int) -> Case:
    M = N = K = 4096
    a = torch.randint(-127, 128, (M, K), dtype=torch.int8, device="cuda")
    b = torch.randint(0, 256, (N, K * bits // 8), dtype=torch.uint8, device="cuda")
    kernel = _few_bits(M, N, K, bits)

    def reference() -> torch.Tensor:
        fields = torch.stack([b >> place & 2**bits - 1 for place in range(0, 8, bits)], -1).reshape(N, K)
        signed = fields.to(torch.int8) << 8 - bits >> 8 - bits
        return torch._int_mm(a, signed.T)

    return Case(lambda: kernel(a, b), reference, (a, b))


def weights_of_2_bits() -> Case:
    """Bytes times signed weights of two bits, 4096 x 4096 x 4096."""
    return _of_few_bits(2)


def weights_of_4_bits() -> Case:
    """Bytes times signed weights of four bits, 4096 x 4096 x 4096."""
    return _of_few_bits(4)


@tilec.jit(out_idx=[-2, -1])
def _cross_entropy(M, V, block=4096, dtype="bfloat16"):
    @T.prim_func
    def main(
        X: T.Tensor((M, V), dtype),
        label: T.Tensor((M,), "int64"),
        loss: T.Tensor((M,), "float32"),
        grad: T.Tensor((M, V), dtype),
    ):
        with T.Kernel(M, threads=256) as m:
            x = T.alloc_fragment((block,), "float32")
            top, old, part, total = (T.alloc_fragment((1,), "float32") for _ in range(4))
            T.fill(top, -T.infinity("float32"))
            T.clear(total)
            for b in T.serial(T.ceildiv(V, block)):
                for i in T.Parallel(block):
                    inside = b * block + i < V
                    x[i] = T.if_then_else(
                        inside, X[m, b * block + i].astype("float32"), -T.infinity("float32")
                    )
                T.copy(top, old)
                T.reduce_max(x, top, dim=0, clear=False)
                for i in T.Parallel(block):
                    x[i] = T.exp(x[i] - top[0])
                T.reduce_sum(x, part, dim=0)
                total[0] = total[0] * T.exp(old[0] - top[0]) + part[0]
            loss[m] = T.log(total[0]) + top[0] - X[m, label[m]].astype("float32")
            for b in T.serial(T.ceildiv(V, block)):
                for i in T.Parallel(block):
                    if b * block + i < V:
                        p = T.exp(X[m, b * block + i].astype("float32") - top[0]) / total[0]
                        grad[m, b * block + i] = (p - T.if_then_else(label[m] == b * block + i, 1.0, 0.0)) / M

    return main


def cross_entropy() -> Case:
    """The loss of 4096 rows over a vocabulary of 50257 in bfloat16, and its gradient."""
    M, V = 4096, 50257
    x = torch.randn(M, V, device="cuda", dtype=torch.bfloat16)
    label = torch.randint(0, V, (M,), device="cuda")
    kernel = _cross_entropy(M, V)
    rows = torch.arange(M, device="cuda")

    def reference() -> list[torch.Tensor]:
        wide = x.float()
        p, loss = wide.softmax(-1), wide.logsumexp(-1) - wide.gather(1, label[:, None])[:, 0]
        p[rows, label] -= 1
        return [loss, (p / M).bfloat16()]

    return Case(lambda: kernel(x, label), reference, (x, x, x))


#: Attention, the convolution and products are no matter of bytes: their floor is far off.
CASES = (
    norm_gradient, selective_scan, log_sums, means, group_norm, taps, taps_of_columns, hadamard, bitonic_sort,
    first_convolution, sampled, weights_of_2_bits, weights_of_4_bits, cross_entropy, heads_of_72, heads_of_40,
    heads_of_104,
)  # fmt: skip
