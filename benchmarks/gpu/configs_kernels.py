"""Products, attention and products of 4-bit weights as one writes them first, every choice left open."""

from typing import Any

import tilec
import tilec.language as T

#: Bits of an exponential's argument for one of e.
LOG2_E = 1.44269504


@tilec.jit(out_idx=[-1])
def product(M, N, K, bM, bN, bK, threads, stages, ta, tb, dtype, out, form):
    """C = A B, each operand with K first or last; by ``form`` the result passes through shared memory, a bias
    is added, or elements are stored one by one."""

    @T.prim_func
    def main(
        A: T.Tensor((K, M) if ta else (M, K), dtype),
        B: T.Tensor((N, K) if tb else (K, N), dtype),
        bias: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), out),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            a = T.alloc_shared((bK, bM) if ta else (bM, bK), dtype)
            b = T.alloc_shared((bN, bK) if tb else (bK, bN), dtype)
            c = T.alloc_fragment((bM, bN), "int32" if dtype == "int8" else "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, bK), num_stages=stages):
                T.copy(A[k * bK, by * bM] if ta else A[by * bM, k * bK], a)
                T.copy(B[bx * bN, k * bK] if tb else B[k * bK, bx * bN], b)
                T.gemm(a, b, c, transpose_A=ta, transpose_B=tb)
            if form == "elements":
                for i, j in T.Parallel(bM, bN):
                    C[by * bM + i, bx * bN + j] = T.max(c[i, j], 0)
            elif form == "shared":
                held = T.alloc_shared((bM, bN), out)
                T.copy(c, held)
                T.copy(held, C[by * bM, bx * bN])
            else:
                if form == "bias":
                    for i, j in T.Parallel(bM, bN):
                        c[i, j] += bias[bx * bN + j]
                T.copy(c, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def attention(B, S, H, G, D, DV, bM, bN, threads, stages, causal, dtype, form):
    """Attention of H heads over H / G, of D and DV channels; by ``form`` weights pass through shared memory,
    values are loaded behind the first product, or logarithms of sums are stored."""
    scale = D**-0.5 * LOG2_E

    @T.prim_func
    def main(
        Q: T.Tensor((B, S, H, D), dtype),
        K: T.Tensor((B, S, H // G, D), dtype),
        V: T.Tensor((B, S, H // G, DV), dtype),
        sums: T.Tensor((B, H, S), "float32"),
        out: T.Tensor((B, S, H, DV), dtype),
    ):
        with T.Kernel(T.ceildiv(S, bM), H, B, threads=threads) as (bx, h, b):
            q = T.alloc_shared((bM, D), dtype)
            k = T.alloc_shared((bN, D), dtype)
            v = T.alloc_shared((bN, DV), dtype)
            s = T.alloc_fragment((bM, bN), "float32")
            p = T.alloc_shared((bM, bN), dtype) if form == "shared" else T.alloc_fragment((bM, bN), dtype)
            o = T.alloc_fragment((bM, DV), "float32")
            m, old, alpha, total, part = (T.alloc_fragment((bM,), "float32") for _ in range(5))
            T.copy(Q[b, bx * bM : (bx + 1) * bM, h, :], q)
            T.fill(m, -T.infinity("float32"))
            T.clear(total)
            T.clear(o)
            for n in T.Pipelined(
                T.ceildiv((bx + 1) * bM, bN) if causal else T.ceildiv(S, bN), num_stages=stages
            ):
                T.copy(K[b, n * bN : (n + 1) * bN, h // G, :], k)
                if form != "late":
                    T.copy(V[b, n * bN : (n + 1) * bN, h // G, :], v)
                if causal:
                    for i, j in T.Parallel(bM, bN):
                        s[i, j] = T.if_then_else(bx * bM + i >= n * bN + j, 0, -T.infinity("float32"))
                else:
                    T.clear(s)
                T.gemm(q, k, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                if form == "late":
                    T.copy(V[b, n * bN : (n + 1) * bN, h // G, :], v)
                T.copy(m, old)
                T.reduce_max(s, m, dim=1, clear=False)
                for i in T.Parallel(bM):
                    alpha[i] = T.exp2(old[i] * scale - m[i] * scale)
                for i, j in T.Parallel(bM, bN):
                    s[i, j] = T.exp2(s[i, j] * scale - m[i] * scale)
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(bM):
                    total[i] = total[i] * alpha[i] + part[i]
                for i, j in T.Parallel(bM, DV):
                    o[i, j] *= alpha[i]
                T.copy(s, p)
                T.gemm(p, v, o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(bM, DV):
                o[i, j] /= total[i]
            T.copy(o, out[b, bx * bM : (bx + 1) * bM, h, :])
            if form == "sums":
                for i in T.Parallel(bM):
                    sums[b, h, bx * bM + i] = T.log2(total[i]) + m[i] * scale

    return main


@tilec.jit(out_idx=[-1])
def few_bits(M, N, K, group, bM, bN, bK, threads, stages, form):
    """Y = X W^T with two 4-bit weights in a byte and a factor for each ``group``; by ``form`` they pass
    through shared memory or are the rows of the product."""
    turned = form == "turned"

    @T.prim_func
    def main(
        X: T.Tensor((M, K), "float16"),
        W: T.Tensor((N, K // 2), "uint8"),
        factors: T.Tensor((N, K // group), "float16"),
        Y: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            x = T.alloc_shared((bM, bK), "float16")
            packed = T.alloc_shared((bN, bK // 2), "uint8")
            held = T.alloc_fragment((bN, bK // 2), "uint8")
            w = T.alloc_fragment((bN, bK), "float16")
            stored = T.alloc_shared((bN, bK), "float16")
            y = T.alloc_fragment((bN, bM) if turned else (bM, bN), "float32")
            T.clear(y)
            for k in T.Pipelined(K // bK, num_stages=stages):
                T.copy(X[by * bM, k * bK], x)
                T.copy(W[bx * bN, k * bK // 2], packed)
                T.copy(packed, held)
                for i, j in T.Parallel(bN, bK):
                    number = (held[i, j // 2] >> T.cast(j % 2 * 4, "uint8")) & T.uint8(15)
                    w[i, j] = (number.astype("float16") - 8) * factors[bx * bN + i, (k * bK + j) // group]
                if turned:
                    T.gemm(w, x, y, transpose_B=True)
                else:
                    T.copy(w, stored)
                    T.gemm(x, stored, y, transpose_B=True)
            if turned:
                for i, j in T.Parallel(bN, bM):
                    Y[by * bM + j, bx * bN + i] = y[i, j]
            else:
                T.copy(y, Y[by * bM, bx * bN])

    return main


FAMILIES: dict[str, Any] = {"product": product, "attention": attention, "few_bits": few_bits}
