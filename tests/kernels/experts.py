"""Mixtures of experts: routing, counting and permuting tokens, expert products, and sums over experts."""

from __future__ import annotations

import argparse

import numpy as np
from family_math import sigmoid, silu, wide

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-2, -1])
def grouped_topk(num_experts, n_groups, topk_groups, topk, rows=4, threads=64, scaling=2.5):
    """Sigmoid scores with a bias that only chooses: first the best groups by their two best, then experts."""
    tokens = T.dynamic("tokens")
    per = num_experts // n_groups
    NEG = -1e30

    @T.prim_func
    def main(
        logits: T.Tensor((tokens, num_experts), "float32"),
        bias: T.Tensor((num_experts,), "float32"),
        weights: T.Tensor((tokens, topk), "float32"),
        ids: T.Tensor((tokens, topk), "int32"),
    ):
        with T.Kernel(T.ceildiv(tokens, rows), threads=threads) as bx:
            score = T.alloc_fragment((rows, n_groups, per), "float32")
            chosen = T.alloc_fragment((rows, n_groups, per), "float32")
            best, second = (T.alloc_fragment((rows, n_groups), "float32") for _ in range(2))
            rest = T.alloc_fragment((rows, n_groups, per), "float32")
            rank = T.alloc_fragment((rows, n_groups), "int32")
            flat = T.alloc_shared((rows, num_experts), "float32")
            row, where = (
                T.alloc_fragment((rows, num_experts), "float32"),
                T.alloc_fragment((rows, num_experts), "int32"),
            )
            top, total = T.alloc_fragment((rows,), "float32"), T.alloc_fragment((rows,), "float32")
            at = T.alloc_fragment((rows,), "int32")
            for i, g, e in T.Parallel(rows, n_groups, per):
                score[i, g, e] = T.sigmoid(logits[bx * rows + i, g * per + e])
                chosen[i, g, e] = score[i, g, e] + bias[g * per + e]
            T.reduce_max(chosen, best, dim=2)
            for i, g, e in T.Parallel(rows, n_groups, per):
                rest[i, g, e] = T.if_then_else(chosen[i, g, e] == best[i, g], NEG, chosen[i, g, e])
            T.reduce_max(rest, second, dim=-1)
            for i, g in T.Parallel(rows, n_groups):
                best[i, g] += second[i, g]
            T.clear(rank)
            for o in T.serial(n_groups):
                for i, g in T.Parallel(rows, n_groups):
                    if best[i, o] > best[i, g] or (best[i, o] == best[i, g] and o < g):
                        rank[i, g] += 1
            for i, g, e in T.Parallel(rows, n_groups, per):
                flat[i, g * per + e] = T.if_then_else(rank[i, g] < topk_groups, chosen[i, g, e], NEG)
            T.copy(flat, row)
            T.clear(total)
            for k in T.serial(topk):
                T.reduce_max(row, top, dim=1)
                for i, e in T.Parallel(rows, num_experts):
                    where[i, e] = T.if_then_else(row[i, e] == top[i], e, num_experts)
                T.reduce_min(where, at, dim=1)
                for i, e in T.Parallel(rows, num_experts):
                    if e == at[i]:
                        row[i, e] = NEG
                for i in T.Parallel(rows):
                    weight = top[i] - bias[at[i]]
                    weights[bx * rows + i, k] = weight
                    ids[bx * rows + i, k] = at[i]
                    total[i] += weight
            for i, k in T.Parallel(rows, topk):
                weights[bx * rows + i, k] = weights[bx * rows + i, k] / (total[i] + 1e-20) * scaling

    return main


@tilec.jit
def expert_counts(ids, num_experts: int = 8, blk: int = 64):
    """Tokens per expert: histograms in shared memory, added up by a second launch."""
    n = T.dynamic("n")
    ids: T.Tensor[[n], T.int32]
    out = T.empty((num_experts,), T.int32)
    part = T.alloc_global((T.ceildiv(n, blk), num_experts), T.int32)
    with T.Kernel(T.ceildiv(n, blk), threads=64) as bx:
        hist = T.alloc_shared((num_experts,), T.int32)
        T.clear(hist)
        for i in T.Parallel(blk):
            if bx * blk + i < n:
                T.atomic_add(hist[ids[bx * blk + i]], 1)
        T.copy(hist, part[bx, :])
    with T.Kernel(1, threads=64):
        total = T.alloc_fragment((num_experts,), T.int32)
        T.clear(total)
        for b in T.serial(T.ceildiv(n, blk)):
            for e in T.Parallel(num_experts):
                total[e] += part[b, e]
        T.copy(total, out)
    return out


@tilec.jit
def align_tokens(num_experts, block=16, threads=64):
    """Places of (token, choice) pairs sorted by expert, each expert's part padded to whole blocks with ``n``;
    the expert of every block; and how many places there are."""
    n, places, blocks = T.dynamic("n"), T.dynamic("places"), T.dynamic("blocks")

    @T.prim_func
    def main(
        ids: T.Tensor((n,), "int32"),
        counts: T.Tensor((num_experts,), "int32"),
        sorted_ids: T.Tensor((places,), "int32"),
        expert_ids: T.Tensor((blocks,), "int32"),
        total: T.Tensor((1,), "int32"),
    ):
        with T.Kernel(1, threads=threads):
            ends = T.alloc_shared((num_experts,), "int32")
            at = T.alloc_var("int32")
            for e in T.Parallel(num_experts):
                ends[e] = T.ceildiv(counts[e], block) * block
            T.cumsum(ends, dim=0)
            total[0] = ends[num_experts - 1]
            for b in T.Parallel(blocks):
                expert_ids[b] = -1
            for i in T.Parallel(places):
                sorted_ids[i] = n
            for e in T.serial(num_experts):
                first = T.if_then_else(e > 0, ends[T.max(e - 1, 0)], 0)
                for b in T.Parallel(blocks):
                    if b * block >= first and b * block < ends[e]:
                        expert_ids[b] = e
                at = first
                for i in T.serial(n):
                    if ids[i] == e:
                        sorted_ids[at] = i
                        at += 1

    return main


@tilec.jit(out_idx=[-1], pass_configs={tilec.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def routed_experts(hidden, inter, num_experts, topk, block_M=16, block_H=32, block_I=32, dtype="float16"):
    """Gate, up, silu and down of each token's experts, in two launches: rows are gathered by sorted_ids."""
    tokens, places, blocks = T.dynamic("tokens"), T.dynamic("places"), T.dynamic("blocks")
    accum = T.float32

    @T.prim_func
    def main(
        X: T.Tensor((tokens, hidden), dtype),
        W_gate: T.Tensor((num_experts, inter, hidden), dtype),
        W_up: T.Tensor((num_experts, inter, hidden), dtype),
        W_down: T.Tensor((num_experts, hidden, inter), dtype),
        weights: T.Tensor((tokens, topk), "float32"),
        sorted_ids: T.Tensor((places,), "int32"),
        expert_ids: T.Tensor((blocks,), "int32"),
        Out: T.Tensor((tokens, topk, hidden), dtype),
    ):
        middle = T.alloc_global((places, inter), dtype)
        with T.Kernel(blocks, T.ceildiv(inter, block_I), threads=128) as (bx, by):
            x_s = T.alloc_shared((block_M, block_H), dtype)
            g_s, u_s = T.alloc_shared((block_I, block_H), dtype), T.alloc_shared((block_I, block_H), dtype)
            gate, up = (T.alloc_fragment((block_M, block_I), accum) for _ in range(2))
            pair = T.alloc_fragment((block_M,), "int32")
            e = expert_ids[bx]
            if e >= 0:
                T.copy(sorted_ids[bx * block_M : (bx + 1) * block_M], pair)
                T.clear(gate)
                T.clear(up)
                for k in T.Pipelined(T.ceildiv(hidden, block_H), num_stages=2):
                    for i, j in T.Parallel(block_M, block_H):
                        x_s[i, j] = X[pair[i] // topk, k * block_H + j]
                    T.copy(W_gate[e, by * block_I : (by + 1) * block_I, k * block_H : (k + 1) * block_H], g_s)
                    T.copy(W_up[e, by * block_I : (by + 1) * block_I, k * block_H : (k + 1) * block_H], u_s)
                    T.gemm(x_s, g_s, gate, transpose_B=True)
                    T.gemm(x_s, u_s, up, transpose_B=True)
                for i, j in T.Parallel(block_M, block_I):
                    gate[i, j] = gate[i, j] * (1.0 / (1.0 + T.exp2(-gate[i, j] * 1.44269504)))
                    up[i, j] = up[i, j] * gate[i, j]
                T.copy(up, middle[bx * block_M : (bx + 1) * block_M, by * block_I : (by + 1) * block_I])
        with T.Kernel(blocks, T.ceildiv(hidden, block_H), threads=128) as (bx, by):
            m_s, w_s = T.alloc_shared((block_M, block_I), dtype), T.alloc_shared((block_H, block_I), dtype)
            acc = T.alloc_fragment((block_M, block_H), accum)
            e = expert_ids[bx]
            if e >= 0:
                T.clear(acc)
                for k in T.Pipelined(T.ceildiv(inter, block_I), num_stages=2):
                    T.copy(middle[bx * block_M, k * block_I], m_s)
                    T.copy(W_down[e, by * block_H : (by + 1) * block_H, k * block_I : (k + 1) * block_I], w_s)
                    T.gemm(m_s, w_s, acc, transpose_B=True)
                for i, j in T.Parallel(block_M, block_H):
                    p = sorted_ids[bx * block_M + i]
                    if p < tokens * topk:
                        Out[p // topk, p % topk, by * block_H + j] = acc[i, j] * weights[p // topk, p % topk]

    return main


@tilec.jit
def shared_expert(x, Wg, Wu, Wd, bM: int = 32, bI: int = 32, bK: int = 32, act: str = "silu"):
    """The expert of every token: gate, up, activation and down."""
    M, H, I = T.dynamic("M"), *T.const("H I")
    x: T.Tensor[[M, H], T.bfloat16]
    Wg: T.Tensor[[I, H], T.bfloat16]
    Wu: T.Tensor[[I, H], T.bfloat16]
    Wd: T.Tensor[[H, I], T.bfloat16]
    y = T.empty((M, H), T.bfloat16)
    mid = T.alloc_global((M, I), T.bfloat16)
    activations = {"silu": lambda v: v * T.sigmoid(v), "relu": lambda v: T.max(v, 0.0)}
    with T.Kernel(T.ceildiv(M, bM), T.ceildiv(I, bI), threads=128) as (bx, by):
        xs, gs, us = (T.alloc_shared((rows, bK), T.bfloat16) for rows in (bM, bI, bI))
        g, u = [T.alloc_fragment((bM, bI), T.float32) for _ in "gu"]
        T.use_swizzle(10, enable=True)
        T.clear(g)
        T.clear(u)
        for k in T.Pipelined(T.ceildiv(H, bK), num_stages=1):
            T.copy(x[bx * bM, k * bK], xs)
            T.copy(Wg[by * bI, k * bK], gs)
            T.copy(Wu[by * bI, k * bK], us)
            T.gemm(xs, gs, g, transpose_B=True)
            T.gemm(xs, us, u, transpose_B=True)
        for i, j in T.Parallel(bM, bI):
            u[i, j] *= activations[act](g[i, j])
        T.copy(u, mid[bx * bM, by * bI])
    with T.Kernel(T.ceildiv(M, bM), T.ceildiv(H, bK), threads=128) as (bx, by):
        ms, ds = T.alloc_shared((bM, bI), T.bfloat16), T.alloc_shared((bK, bI), T.bfloat16)
        o = T.alloc_fragment((bM, bK), T.float32)
        T.clear(o)
        for k in T.Pipelined(T.ceildiv(I, bI), num_stages=1):
            T.copy(mid[bx * bM, k * bI], ms)
            T.copy(Wd[by * bK, k * bI], ds)
            T.gemm(ms, ds, o, transpose_B=True)
        T.copy(o, y[bx * bM, by * bK])
    return y


@tilec.jit(out_idx=[-1])
def combine_experts(hidden, topk, rows=4, blk=128, dtype="float16"):
    """y[t] = shared[t] + sum_k weights[t, k] x[t, k]; a choice below 0 was dropped."""
    T_ = T.dynamic("tokens")

    @T.prim_func
    def main(
        x: T.Tensor((T_, topk, hidden), dtype),
        ids: T.Tensor((T_, topk), "int32"),
        weights: T.Tensor((T_, topk), "float32"),
        shared: T.Tensor((T_, hidden), dtype),
        y: T.Tensor((T_, hidden), dtype),
    ):
        with T.Kernel(T.ceildiv(T_, rows), T.ceildiv(hidden, blk), threads=128) as (bx, by):
            acc = T.alloc_fragment((rows, blk), "float32")
            T.copy(shared[bx * rows, by * blk], acc)
            for k in T.unroll(topk):
                for i, j in T.Parallel(rows, blk):
                    if ids[bx * rows + i, k] >= 0:
                        acc[i, j] += weights[bx * rows + i, k] * x[bx * rows + i, k, by * blk + j]
            T.copy(acc, y[bx * rows, by * blk])

    return main


@tilec.jit(out_idx=[-1])
def grouped_weight_gradient(batch_count, N, K, block_M=32, block_N=32, block_K=32, dtype="float16"):
    """dW[g] = A[rows of g]^T dC[rows of g]: the summed axis is ragged."""
    total = T.dynamic("total")

    @T.prim_func
    def main(
        A: T.Tensor([total, K], dtype),
        dC: T.Tensor([total, N], dtype),
        batch_sizes: T.Tensor([batch_count], "int32"),
        batch_offsets: T.Tensor([batch_count], "int32"),
        dW: T.Tensor([batch_count, K, N], dtype),
    ):
        with T.Kernel(T.ceildiv(K, block_K) * T.ceildiv(N, block_N), batch_count, threads=128) as (bx, bz):
            A_s, C_s = T.alloc_shared([block_M, block_K], dtype), T.alloc_shared([block_M, block_N], dtype)
            acc = T.alloc_fragment([block_K, block_N], "float32")
            bk, bn = bx // T.ceildiv(N, block_N), bx % T.ceildiv(N, block_N)
            offset, size = batch_offsets[bz], batch_sizes[bz]
            T.clear(acc)
            for m in T.Pipelined(T.ceildiv(size, block_M), num_stages=2):
                for i, j in T.Parallel(block_M, block_K):
                    A_s[i, j] = T.if_then_else(
                        m * block_M + i < size, A[offset + m * block_M + i, bk * block_K + j], 0
                    )
                for i, j in T.Parallel(block_M, block_N):
                    C_s[i, j] = T.if_then_else(
                        m * block_M + i < size, dC[offset + m * block_M + i, bn * block_N + j], 0
                    )
                T.gemm(A_s, C_s, acc, transpose_A=True)
            T.copy(acc, dW[bz, bk * block_K : (bk + 1) * block_K, bn * block_N : (bn + 1) * block_N])

    return main


# ---- references and inputs ----


def grouped_topk_reference(logits, bias, weights, n_groups=4, topk_groups=2, topk=3, scaling=2.5):
    scores = sigmoid(logits)
    chosen = scores + bias
    groups = np.sort(chosen.reshape(len(chosen), n_groups, -1), -1)[..., -2:].sum(-1)
    keep = np.argsort(-groups, 1, kind="stable")[:, :topk_groups]
    allowed = np.zeros_like(groups, bool)
    np.put_along_axis(allowed, keep, True, 1)
    masked = np.where(allowed.repeat(chosen.shape[1] // n_groups, 1), chosen, -np.inf)
    ids = np.argsort(-masked, 1, kind="stable")[:, :topk]
    found = np.take_along_axis(scores, ids, 1)
    return found / found.sum(1, keepdims=True) * scaling, ids.astype(np.int32)


def grouped_topk_inputs(dims, rng, topk=3):
    n, e = dims["tokens"], dims["num_experts"]
    return [rng.standard_normal((n, e)), rng.standard_normal(e) * 0.1, np.zeros((n, topk))]


def expert_counts_reference(ids, num_experts=8):
    return np.bincount(ids, minlength=num_experts).astype(np.int32)


def expert_counts_inputs(dims, rng, num_experts=8):
    return [rng.integers(0, num_experts, dims["n"]).astype(np.int32)]


def align_tokens_reference(ids, counts, block=16):
    places, experts = [], []
    for e, count in enumerate(counts):
        mine = np.flatnonzero(ids == e)
        padded = -(-int(count) // block) * block
        places += [*mine, *[len(ids)] * (padded - len(mine))]
        experts += [e] * (padded // block)
    return places, experts


def _aligned(ids, counts, places, blocks):
    """The reference's lists in arrays of the given sizes."""
    found, experts = align_tokens_reference(ids, counts)
    sorted_ids, expert_ids = np.full(places, len(ids), np.int32), np.full(blocks, -1, np.int32)
    sorted_ids[: len(found)], expert_ids[: len(experts)] = found, experts
    return sorted_ids, expert_ids, np.array([len(found)], np.int32)


def align_tokens_check(ids, counts):
    return _aligned(ids, counts, 16 * 12, 12)


def align_tokens_inputs(dims, rng):
    E = dims["num_experts"]
    assert dims["places"] == 16 * 12 and dims["blocks"] == 12, "sizes of align_tokens_check"
    ids = rng.integers(0, E, dims["n"]).astype(np.int32)
    return [ids, np.bincount(ids, minlength=E).astype(np.int32)]


def routed_experts_reference(X, W_gate, W_up, W_down, weights, sorted_ids, expert_ids, block=16):
    out = np.zeros((*weights.shape, X.shape[1]), np.float32)
    for place, pair in enumerate(sorted_ids):
        e = expert_ids[place // block]
        if e >= 0 and pair < weights.size:
            t, k = divmod(int(pair), weights.shape[1])
            middle = silu(wide(W_gate[e]) @ wide(X[t])) * (wide(W_up[e]) @ wide(X[t]))
            out[t, k] = wide(W_down[e]) @ middle * weights[t, k]
    return out


def routed_experts_inputs(dims, rng, topk=2):
    n, H, I, E = (dims[name] for name in ("tokens", "hidden", "inter", "num_experts"))
    ids = np.argsort(rng.standard_normal((n, E)), 1)[:, :topk].reshape(-1).astype(np.int32)
    counts = np.bincount(ids, minlength=E)
    sorted_ids, expert_ids, _ = _aligned(ids, counts, dims["places"], dims["blocks"])
    shapes = ((n, H), (E, I, H), (E, I, H), (E, H, I))
    floats = [rng.standard_normal(shape) * shape[-1] ** -0.5 for shape in shapes]
    return [*floats, rng.uniform(0, 1, (n, topk)), sorted_ids, expert_ids]


def shared_expert_reference(x, Wg, Wu, Wd):
    x, Wg, Wu, Wd = (wide(each) for each in (x, Wg, Wu, Wd))
    return (silu(x @ Wg.T) * (x @ Wu.T)) @ Wd.T


def shared_expert_inputs(dims, rng):
    M, H, I = dims["M"], dims["H"], dims["I"]
    return [rng.standard_normal(s) * s[-1] ** -0.5 for s in ((M, H), (I, H), (I, H), (H, I))]


def combine_experts_reference(x, ids, weights, shared):
    return wide(shared) + (wide(x) * (weights * (ids >= 0))[..., None]).sum(1)


def combine_experts_inputs(dims, rng, topk=4):
    n, H = dims["tokens"], dims["hidden"]
    ids = rng.integers(-1, 8, (n, topk)).astype(np.int32)
    return [rng.standard_normal((n, topk, H)), ids, rng.uniform(0, 1, (n, topk)), rng.standard_normal((n, H))]


def grouped_weight_gradient_reference(A, dC, batch_sizes, batch_offsets):
    parts = [slice(int(o), int(o + s)) for o, s in zip(batch_offsets, batch_sizes, strict=True)]
    return np.stack([wide(A[rows]).T @ wide(dC[rows]) for rows in parts])


def grouped_weight_gradient_inputs(dims, rng):
    total, G, N, K = (dims[name] for name in ("total", "batch_count", "N", "K"))
    ends = np.sort(rng.integers(0, total + 1, G - 1))
    offsets = np.array([0, *ends], np.int32)
    sizes = np.diff([*offsets, total]).astype(np.int32)
    return [rng.standard_normal((total, K)), rng.standard_normal((total, N)), sizes, offsets]


def main(argv=None):
    """A layer of experts, step by step, beside torch."""
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--inter", type=int, default=96)
    parser.add_argument("--experts", type=int, default=8)
    args = parser.parse_args(argv)
    n, H, I, E, topk, block = args.tokens, args.hidden, args.inter, args.experts, 2, 16
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(n, H, device=device).half()
    gate, up = (torch.randn(E, I, H, device=device).div(H**0.5).half() for _ in range(2))
    down = torch.randn(E, H, I, device=device).div(I**0.5).half()
    logits, bias = torch.randn(n, E, device=device), torch.zeros(E, device=device)
    weights, ids = grouped_topk(E, 4, 2, topk)(logits, bias)
    counts = expert_counts(ids.view(-1), num_experts=E)
    assert torch.equal(counts.long(), torch.bincount(ids.view(-1).long(), minlength=E))
    blocks = n * topk // block + E
    lists = _aligned(ids.view(-1).cpu().numpy(), counts.cpu().numpy(), blocks * block, blocks)
    found, experts, _ = (torch.from_numpy(each).to(device) for each in lists)
    parts = routed_experts(H, I, E, topk)(x, gate, up, down, weights, found, experts)
    y = combine_experts(H, topk)(parts, ids, torch.ones_like(weights), torch.zeros_like(x))
    want = torch.zeros(n, H, device=device)
    for k in range(topk):
        e = ids[:, k].long()
        g, u = (torch.einsum("nih,nh->ni", w[e].float(), x.float()) for w in (gate, up))
        want += weights[:, k, None] * torch.einsum(
            "nhi,ni->nh", down[e].float(), torch.nn.functional.silu(g) * u
        )
    torch.testing.assert_close(y.float(), want, rtol=2e-2, atol=2e-2)
    print("All checks pass.")


if __name__ == "__main__":
    main()
