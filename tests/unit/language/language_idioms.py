"""Kernels in the style that authors bring along: each leans on something that is easy to get wrong."""

from __future__ import annotations

import tilec
import tilec.language as T


def tiles(bM, bN, bK, dt="float16"):
    """A plain helper: it runs while building and allocates in the caller's block."""
    return T.alloc_shared((bM, bK), dt), T.alloc_shared((bK, bN), dt), T.alloc_fragment((bM, bN), "float32")


@tilec.jit(out_idx=[-1])
def matmul(M, N, K, bM=32, bN=32, bK=16, stages=3, dt="float16"):
    @T.prim_func
    def main(A: T.Tensor((M, K), dt), B: T.Tensor((K, N), dt), C: T.Tensor((M, N), dt)):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=128) as (bx, by):
            As = T.alloc_shared((bM, bK), dt)
            Bs = T.alloc_shared((bK, bN), dt)
            acc = T.alloc_fragment((bM, bN), "float32")
            T.use_swizzle(panel_size=8)
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=stages):
                T.copy(A[by * bM, ko * bK], As)
                T.copy(B[ko * bK, bx * bN], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def attention(b, h, s, d, causal, bM=16, bN=16):
    scale = d**-0.5 * 1.44269504

    @T.prim_func
    def main(
        Q: T.Tensor((b, s, h, d), "float16"),
        K: T.Tensor((b, s, h, d), "float16"),
        V: T.Tensor((b, s, h, d), "float16"),
        O: T.Tensor((b, s, h, d), "float16"),  # noqa: E741
    ):
        with T.Kernel(T.ceildiv(s, bM), h, b, threads=128) as (bx, by, bz):
            Qs, Ks, Vs = (T.alloc_shared([r, d], "float16") for r in (bM, bN, bN))
            S, P = T.alloc_fragment([bM, bN], "float32"), T.alloc_fragment([bM, bN], "float16")
            o = T.alloc_fragment([bM, d], "float32")
            m, m_old, corr, rs, total = [T.alloc_fragment([bM], "float32") for _ in range(5)]
            T.copy(Q[bz, bx * bM : (bx + 1) * bM, by, :], Qs)
            T.clear(o)
            T.clear(total)
            T.fill(m, -T.infinity("float32"))
            nblk = T.ceildiv((bx + 1) * bM, bN) if causal else T.ceildiv(s, bN)
            for k in T.Pipelined(nblk, num_stages=2):
                T.copy(K[bz, k * bN : (k + 1) * bN, by, :], Ks)
                for i, j in T.Parallel(bM, bN):
                    S[i, j] = T.if_then_else(k * bN + j < s, 0, -T.infinity("float32"))
                    if causal:
                        S[i, j] = T.if_then_else(bx * bM + i >= k * bN + j, S[i, j], -T.infinity("float32"))
                T.gemm(Qs, Ks, S, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(m, m_old)
                T.reduce_max(S, m, dim=1, clear=False)
                for i in T.Parallel(bM):
                    corr[i] = T.exp2((m_old[i] - m[i]) * scale)
                for i, j in T.Parallel(bM, bN):
                    S[i, j] = T.exp2((S[i, j] - m[i]) * scale)
                T.reduce_sum(S, rs, dim=1)
                for i in T.Parallel(bM):
                    total[i] = total[i] * corr[i] + rs[i]
                T.copy(S, P)
                for i, j in T.Parallel(bM, d):
                    o[i, j] *= corr[i]
                T.copy(V[bz, k * bN : (k + 1) * bN, by, :], Vs)
                T.gemm(P, Vs, o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(bM, d):
                o[i, j] /= total[i]
            T.copy(o, O[bz, bx * bM : (bx + 1) * bM, by, :])

    return main


@tilec.jit(out_idx=[-1])
def w4a16(M, N, K, bM=16, bN=16, bK=32):
    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        W: T.Tensor((N, K // 2), "uint8"),
        S: T.Tensor((N, K // 32), "float16"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=128) as (bx, by):
            As = T.alloc_shared((bM, bK), "float16")
            Ws = T.alloc_shared((bN, bK // 2), "uint8")
            Wf = T.alloc_fragment((bN, bK // 2), "uint8")
            Df = T.alloc_fragment((bN, bK), "float16")
            Ds = T.alloc_shared((bN, bK), "float16")
            acc = T.alloc_fragment((bM, bN), "float32")
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=2):
                T.copy(A[by * bM, ko * bK], As)
                T.copy(W[bx * bN, ko * bK // 2], Ws)
                T.copy(Ws, Wf)
                for i, j in T.Parallel(bN, bK):
                    q = (Wf[i, j // 2] >> ((j % 2) * 4).astype("uint8")) & T.uint8(15)
                    Df[i, j] = (q.astype("float16") - 8) * S[bx * bN + i, (ko * bK + j) // 32]
                T.copy(Df, Ds)
                T.gemm(As, Ds, acc, transpose_B=True)
            T.copy(acc, C[by * bM, bx * bN])

    return main


@tilec.jit
def grouped(A, B, sizes, offs, tile_group, bM=16, bN=16, bK=16):
    Mt, K, G, N, NT = T.dynamic("Mt"), *T.const("K G N"), T.dynamic("NT")
    A: T.Tensor[[Mt, K], T.float16]
    B: T.Tensor[[G, K, N], T.float16]
    sizes: T.Tensor[[G], T.int32]
    offs: T.Tensor[[G], T.int32]
    tile_group: T.Tensor[[NT, 2], T.int32]
    C = T.empty((Mt, N), T.float16)
    with T.Kernel(NT, T.ceildiv(N, bN), threads=128) as (bx, by):
        As, Bs, acc = tiles(bM, bN, bK)
        g, r0 = tile_group[bx, 0], tile_group[bx, 1]
        m0 = offs[g] + r0
        T.clear(acc)
        for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=2):
            T.copy(A[m0 : m0 + bM, ko * bK : (ko + 1) * bK], As)
            T.copy(B[g, ko * bK : (ko + 1) * bK, by * bN : (by + 1) * bN], Bs)
            T.gemm(As, Bs, acc)
        for i, j in T.Parallel(bM, bN):
            if r0 + i < sizes[g]:
                C[m0 + i, by * bN + j] = acc[i, j]
    return C


@tilec.jit
def varlen_scores(Q, Kc, cu, max_len, bM=16, bN=16):
    tot, D, B1 = T.dynamic("tot"), T.const("D"), T.const("B1")
    Q: T.Tensor[[tot, D], T.float16]
    Kc: T.Tensor[[tot, D], T.float16]
    cu: T.Tensor[[B1], T.int32]
    max_len: T.int32
    L = T.empty((tot,), T.float32)
    with T.Kernel(T.ceildiv(max_len, bM), B1 - 1, threads=128) as (bx, bz):
        Qs, Ks = T.alloc_shared((bM, D), T.float16), T.alloc_shared((bN, D), T.float16)
        S, mx = T.alloc_fragment((bM, bN), T.float32), T.alloc_fragment((bM,), T.float32)
        lo = cu[bz]
        n = cu[bz + 1] - lo
        T.copy(Q[lo + bx * bM : lo + (bx + 1) * bM, :], Qs)
        T.fill(mx, -T.infinity(T.float32))
        for k in T.Pipelined(T.ceildiv(n, bN), num_stages=1):
            T.copy(Kc[lo + k * bN : lo + (k + 1) * bN, :], Ks)
            for i, j in T.Parallel(bM, bN):
                S[i, j] = T.if_then_else(k * bN + j < n, 0, -T.infinity(T.float32))
            T.gemm(Qs, Ks, S, transpose_B=True)
            T.reduce_max(S, mx, dim=1, clear=False)
        for i in T.Parallel(bM):
            if bx * bM + i < n:
                L[lo + bx * bM + i] = mx[i]
    return L


@tilec.jit
def rmsnorm(X, G, eps: float = 1e-6, rows: int = 4):
    """Root-mean-square normalisation of rows."""
    M, N = T.dynamic("M"), T.const("N")
    X: T.Tensor[[M, N], T.float16]
    G: T.Tensor[[N], T.float16]
    Y = T.empty((M, N), T.float16)
    with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
        x, sq = T.alloc_fragment((rows, N), T.float32), T.alloc_fragment((rows, N), T.float32)
        ss = T.alloc_fragment((rows,), T.float32)
        T.copy(X[bx * rows, 0], x)
        for i, j in T.Parallel(rows, N):
            sq[i, j] = x[i, j] * x[i, j]
        T.reduce_sum(sq, ss, dim=1)
        for i, j in T.Parallel(rows, N):
            Y[bx * rows + i, j] = x[i, j] * T.rsqrt(ss[i] / N + eps) * G[j]
    return Y


@tilec.jit
def masked_scale(X, Mk, alpha: T.float32 = 1.0, blk: int = 16):
    n = T.dynamic("n")
    X: T.Tensor[[n], T.float32]
    Mk: T.Tensor[[n], T.bool]
    Y = T.empty((n,), T.float32)
    with T.Kernel(T.ceildiv(n, blk), threads=256) as bx:
        for i in T.Parallel(blk):
            p = bx * blk + i
            Y[p] = X[p] * alpha if Mk[p] else 0
    return Y


@tilec.jit
def topk(X, k, rows=4):
    M, N = T.const("M N")
    X: T.Tensor[[M, N], T.float32]
    V = T.empty((M, k), T.float32)
    I = T.empty((M, k), T.int32)  # noqa: E741
    with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
        x, c = T.alloc_fragment((rows, N), T.float32), T.alloc_fragment((rows, N), T.int32)
        mv, mi = T.alloc_fragment((rows,), T.float32), T.alloc_fragment((rows,), T.int32)
        T.copy(X[bx * rows, 0], x)
        for r in T.serial(k):
            T.reduce_max(x, mv, dim=1)
            for i, j in T.Parallel(rows, N):
                c[i, j] = T.if_then_else(x[i, j] == mv[i], j, -1)
            T.reduce_max(c, mi, dim=1)
            for i, j in T.Parallel(rows, N):
                if j == mi[i]:
                    x[i, j] = -T.infinity(T.float32)
            for i in T.Parallel(rows):
                V[bx * rows + i, r] = mv[i]
                I[bx * rows + i, r] = mi[i]
    return V, I


@tilec.jit
def rowsum_split(X, parts: int = 8, blk: int = 16):
    M, N = T.const("M N")
    X: T.Tensor[[M, N], T.float32]
    Y = T.empty((M,), T.float32)
    part = T.alloc_global((parts, M), T.float32)
    span = T.ceildiv(N, parts)
    with T.Kernel(M, parts, threads=128) as (bm, bp):
        f, s = T.alloc_fragment((span,), T.float32), T.alloc_fragment((1,), T.float32)
        for j in T.Parallel(span):
            f[j] = T.if_then_else(bp * span + j < N, X[bm, bp * span + j], 0)
        T.reduce_sum(f, s, dim=0)
        part[bp, bm] = s[0]
    with T.Kernel(T.ceildiv(M, blk), threads=128) as bm:
        for i in T.Parallel(blk):
            acc = T.alloc_var(T.float32)
            acc = 0.0
            for p in T.serial(parts):
                acc += part[p, bm * blk + i]
            Y[bm * blk + i] = acc
    return Y


@T.macro
def mac(A, B, As, Bs, acc, row, col, k0, steps, bK, stages):
    for k in T.Pipelined(steps, num_stages=stages):
        T.copy(A[row, (k0 + k) * bK], As)
        T.copy(B[(k0 + k) * bK, col], Bs)
        T.gemm(As, Bs, acc)


@tilec.jit
def splitk(A, B, C, bM=32, bN=32, bK=16, parts=3):
    M, N, K = T.const("M N K")
    A: T.Tensor[[M, K], T.float16]
    B: T.Tensor[[K, N], T.float16]
    C: T.Tensor[[M, N], T.float32]
    span = T.ceildiv(K, parts * bK) * bK
    with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), parts, threads=128) as (bx, by, bz):
        As, Bs, acc = tiles(bM, bN, bK)
        T.clear(acc)
        mac(A, B, As, Bs, acc, by * bM, bx * bN, bz * (span // bK), span // bK, bK, 2)
        T.atomic_add(C[by * bM, bx * bN], acc)


@tilec.jit
def streamk(A, B, C, bM=32, bN=32, bK=16, workers=5):
    M, N, K = T.const("M N K")
    A: T.Tensor[[M, K], T.float16]
    B: T.Tensor[[K, N], T.float16]
    C: T.Tensor[[M, N], T.float32]
    ipt = T.ceildiv(K, bK)
    tn = T.ceildiv(N, bN)
    total = T.ceildiv(M, bM) * tn * ipt
    with T.Kernel(workers, threads=128) as pid:
        As, Bs, acc = tiles(bM, bN, bK)
        it = T.alloc_var(T.int32)
        it = pid * total // workers
        last = (pid + 1) * total // workers
        while it < last:
            tile = it // ipt
            k0 = it % ipt
            steps = T.min(ipt - k0, last - it)
            T.clear(acc)
            mac(A, B, As, Bs, acc, tile // tn * bM, tile % tn * bN, k0, steps, bK, 2)
            T.atomic_add(C[tile // tn * bM, tile % tn * bN], acc)
            it += steps


@tilec.jit
def persistent(A, B, bM=32, bN=32, bK=16, workers=3):
    M, N, K = T.const("M N K")
    A: T.Tensor[[M, K], T.float16]
    B: T.Tensor[[K, N], T.float16]
    C = T.empty((M, N), T.float32)
    with T.Kernel(workers, threads=128) as pid:
        As, Bs, acc = tiles(bM, bN, bK)
        for by, bx in T.Persistent([T.ceildiv(M, bM), T.ceildiv(N, bN)], workers, pid):
            T.clear(acc)
            mac(A, B, As, Bs, acc, by * bM, bx * bN, 0, T.ceildiv(K, bK), bK, 3)
            T.copy(acc, C[by * bM, bx * bN])
    return C


@tilec.jit
def rowscan(X, reverse: bool = False, rows: int = 4):
    M, N = T.const("M N")
    X: T.Tensor[[M, N], T.float32]
    Y = T.empty((M, N), T.float32)
    with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
        s = T.alloc_shared((rows, N), T.float32)
        T.copy(X[bx * rows, 0], s)
        T.cumsum(s, dim=1, reverse=reverse)
        T.copy(s, Y[bx * rows, 0])
    return Y
