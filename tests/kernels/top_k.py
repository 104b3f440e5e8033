"""The largest elements of rows: by repeated maxima, by sorting, by counting digits, and draws from them."""

from __future__ import annotations

import argparse

import numpy as np
from family_math import wide

import tilec
import tilec.language as T

FAST = {tilec.PassConfigKey.TL_ENABLE_FAST_MATH: True}


@tilec.jit(out_idx=[1, 2])
def topk_repeated(M, N, topk, blk_m=16, threads=128, dtype=T.float32):
    """Logits and places, the first of equals; a place already taken becomes -inf."""

    @T.prim_func
    def topk_kernel(
        logits: T.Tensor([M, N], dtype),
        topk_gates: T.Tensor([M, topk], dtype),
        topk_indices: T.Tensor([M, topk], T.int32),
    ):
        with T.Kernel(T.ceildiv(M, blk_m), threads=threads) as bx:
            logits_frag = T.alloc_fragment([blk_m, N], dtype=dtype)
            max_val = T.alloc_fragment([blk_m], dtype=dtype)
            expand_max_idx = T.alloc_fragment([blk_m, N], T.int32)
            max_idx = T.alloc_fragment([blk_m], T.int32)
            T.copy(logits[bx * blk_m, 0], logits_frag)
            for k in T.serial(topk):
                T.fill(expand_max_idx, -1)
                T.reduce_max(logits_frag, max_val, dim=1, clear=True)
                for i, j in T.Parallel(blk_m, N):
                    expand_max_idx[i, j] = T.if_then_else(
                        max_val[i] == logits_frag[i, j], N - j, expand_max_idx[i, j]
                    )
                T.reduce_max(expand_max_idx, max_idx, dim=1, clear=True)
                for i, j in T.Parallel(blk_m, N):
                    logits_frag[i, j] = T.if_then_else(
                        N - j == max_idx[i], -T.infinity(dtype), logits_frag[i, j]
                    )
                for i in T.Parallel(blk_m):
                    topk_gates[bx * blk_m + i, k] = max_val[i]
                    topk_indices[bx * blk_m + i, k] = N - max_idx[i]

    return topk_kernel


@tilec.jit
def topk_sorted(X, topk: int = 8, rows: int = 4):
    """Bitonic sort of each row in shared memory with its places, then the head of it."""
    M, N = T.dynamic("M"), T.const("N")
    X: T.Tensor[[M, N], T.float32]
    V = T.empty((M, topk), T.float32)
    I = T.empty((M, topk), T.int32)
    size = tilec.next_power_of_2(N)
    steps = size.bit_length() - 1
    with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
        key, place = T.alloc_shared((rows, size), T.float32), T.alloc_shared((rows, size), T.int32)
        new_key, new_place = (
            T.alloc_fragment((rows, size), T.float32),
            T.alloc_fragment((rows, size), T.int32),
        )
        for i, j in T.Parallel(rows, size):
            key[i, j] = T.if_then_else(j < N, X[bx * rows + i, j], -T.infinity(T.float32))
            place[i, j] = j
        for stage in T.serial(steps):
            for back in T.serial(stage + 1):
                span = 1 << (stage - back)
                for i, j in T.Parallel(rows, size):
                    other = j ^ span
                    falling = ((j >> (stage + 1)) & 1) == 0
                    ahead = (key[i, j] > key[i, other]) | (
                        (key[i, j] == key[i, other]) & (place[i, j] < place[i, other])
                    )
                    keep = (ahead == (j < other)) == falling
                    new_key[i, j] = T.if_then_else(keep, key[i, j], key[i, other])
                    new_place[i, j] = T.if_then_else(keep, place[i, j], place[i, other])
                T.copy(new_key, key)
                T.copy(new_place, place)
        for i, k in T.Parallel(rows, topk):
            V[bx * rows + i, k] = key[i, k]
            I[bx * rows + i, k] = place[i, k]
    return V, I


def convert_to_uint32(x):
    """Bits in which larger numbers are larger."""
    bits_uint = T.reinterpret(x, T.uint32)
    return T.if_then_else(
        x < 0, ~bits_uint & T.Cast(T.uint32, (0xFFFFFFFF)), bits_uint | T.Cast(T.uint32, (0x80000000))
    )


@tilec.jit(pass_configs={tilec.PassConfigKey.TL_DISABLE_THREAD_STORAGE_SYNC: False})
def topk_radix(topk, in_dtype=T.float32, out_dtype=T.int32, threads=128):
    """Places of the largest of each row, rising. Four passes decide on a byte of the smallest key each, with
    counters that threads share."""
    batch = T.dynamic("batch")
    seq_len = T.dynamic("seq_len")
    RADIX = 1 << 8

    @T.prim_func
    def tl_topk_kernel(
        input: T.Tensor([batch, seq_len], in_dtype),
        index: T.Tensor([batch, topk], out_dtype),
    ):
        with T.Kernel(batch, threads=threads) as bx:
            tx = T.get_thread_binding()
            s_histogram = T.alloc_shared([RADIX + 1], T.int32)
            s_counter = T.alloc_shared([2], T.int32)
            s_threshold = T.alloc_shared([2], T.int32)
            s_index = T.alloc_shared([topk], T.int32)
            l_key = T.alloc_var(T.uint32)
            prefix = T.alloc_var(T.uint32)
            left = T.alloc_var(T.int32)
            running = T.alloc_var(T.int32)
            prefix = T.uint32(0)
            left = topk
            for digit in T.serial(4):
                for s in T.serial(T.ceildiv(RADIX, threads)):
                    if s * threads + tx < RADIX:
                        s_histogram[s * threads + tx] = 0
                T.sync_threads()
                shift = T.Cast(T.uint32, 24 - 8 * digit)
                for s in T.serial(T.ceildiv(seq_len, threads)):
                    if s * threads + tx < seq_len:
                        l_key = convert_to_uint32(input[bx, s * threads + tx])
                        if digit == 0 or (l_key >> (shift + T.uint32(8))) == prefix:
                            T.atomic_add(s_histogram[T.Cast(T.int32, (l_key >> shift) & T.uint32(255))], 1)
                T.sync_threads()
                if tx == 0:
                    running = 0
                    for back in T.serial(RADIX):
                        bucket = RADIX - 1 - back
                        if running < left and running + s_histogram[bucket] >= left:
                            s_threshold[0] = bucket
                            s_threshold[1] = left - running
                        running += s_histogram[bucket]
                T.sync_threads()
                prefix = (prefix << T.uint32(8)) | T.Cast(T.uint32, s_threshold[0])
                left = s_threshold[1]
                T.sync_threads()
            if tx < 2:
                s_counter[tx] = 0
            T.sync_threads()
            for s in T.serial(T.ceildiv(seq_len, threads)):
                if s * threads + tx < seq_len:
                    l_key = convert_to_uint32(input[bx, s * threads + tx])
                    if l_key > prefix:
                        pos = T.atomic_add(s_counter[0], 1, return_prev=True)
                        s_index[pos] = s * threads + tx
                    elif l_key == prefix:
                        pos = T.atomic_add(s_counter[1], 1, return_prev=True)
                        if pos < left:
                            s_index[topk - left + pos] = s * threads + tx
            T.sync_threads()
            if tx < topk:
                running = 0
                for other in T.serial(topk):
                    if s_index[other] < s_index[tx]:
                        running += 1
                index[bx, running] = s_index[tx]

    return tl_topk_kernel


@tilec.jit(out_idx=[-1], pass_configs=FAST)
def indexer_logits(heads, dim, block_Q=4, block_N=32, num_stages=2, threads=128):
    """What keys of a sparse attention are chosen by: relu(q k) w summed over heads, in a span per query."""
    seq_len, seq_len_kv = T.dynamic("seq_len"), T.dynamic("seq_len_kv")
    dtype, accum_dtype, index_dtype = T.float8_e4m3fn, T.float32, T.int32

    @T.prim_func
    def mqa_attn_return_logits_kernel(
        IndexQ: T.Tensor([seq_len * heads, dim], dtype),
        IndexK: T.Tensor([seq_len_kv, dim], dtype),
        IndexKScale: T.Tensor([seq_len_kv], accum_dtype),
        Weights: T.Tensor([seq_len, heads], accum_dtype),
        CuSeqLenKS: T.Tensor([seq_len], index_dtype),
        CuSeqLenKE: T.Tensor([seq_len], index_dtype),
        Logits: T.Tensor([seq_len, seq_len_kv], accum_dtype),
    ):
        with T.Kernel(T.ceildiv(seq_len, block_Q), threads=threads) as bx:
            index_q_shared = T.alloc_shared([block_Q * heads, dim], dtype)
            index_k_shared = T.alloc_shared([block_N, dim], dtype)
            index_k_scale_fragment = T.alloc_fragment([block_N], accum_dtype)
            s = T.alloc_fragment([block_N, block_Q * heads], accum_dtype)
            s_reshaped = T.reshape(s, (block_N, block_Q, heads))
            logits = T.alloc_fragment([block_N, block_Q], accum_dtype)
            weights = T.alloc_fragment([block_Q, heads], accum_dtype)
            seq_len_i = bx * block_Q
            cu_k_s_min = T.alloc_var(index_dtype)
            cu_k_e_max = T.alloc_var(index_dtype)
            cu_k_s_min = 2147483647
            cu_k_e_max = -2147483648
            for bq_i in T.serial(block_Q):
                if seq_len_i + bq_i < seq_len:
                    cu_k_s_min = T.min(cu_k_s_min, T.min(CuSeqLenKS[seq_len_i + bq_i], seq_len_kv))
            for bq_i in T.serial(block_Q):
                if seq_len_i + bq_i < seq_len:
                    cu_k_e_max = T.max(cu_k_e_max, T.min(CuSeqLenKE[seq_len_i + bq_i], seq_len_kv))
            T.copy(IndexQ[seq_len_i * heads, 0], index_q_shared)
            T.copy(Weights[seq_len_i, 0], weights)
            for nbn_i in T.Pipelined(T.ceildiv(cu_k_e_max - cu_k_s_min, block_N), num_stages=num_stages):
                T.copy(IndexK[cu_k_s_min + nbn_i * block_N, 0], index_k_shared)
                T.copy(IndexKScale[cu_k_s_min + nbn_i * block_N], index_k_scale_fragment)
                T.gemm(
                    index_k_shared,
                    index_q_shared,
                    s,
                    transpose_B=True,
                    clear_accum=True,
                    policy=T.GemmWarpPolicy.FullCol,
                )
                for bn_i, bq_i, h_i in T.Parallel(block_N, block_Q, heads):
                    s_reshaped[bn_i, bq_i, h_i] = (
                        T.max(s_reshaped[bn_i, bq_i, h_i], 0) * weights[bq_i, h_i]
                    ) * index_k_scale_fragment[bn_i]
                T.reduce_sum(s_reshaped, logits, dim=-1, clear=True)
                for bq_i, bn_i in T.Parallel(block_Q, block_N):
                    n = cu_k_s_min + nbn_i * block_N + bn_i
                    if seq_len_i + bq_i < seq_len and n < seq_len_kv:
                        Logits[seq_len_i + bq_i, n] = logits[bn_i, bq_i]
        with T.Kernel(seq_len, threads=threads) as bx:
            for n in T.Parallel(seq_len_kv):
                if n < CuSeqLenKS[bx] or n >= CuSeqLenKE[bx]:
                    Logits[bx, n] = -T.infinity(accum_dtype)

    return mqa_attn_return_logits_kernel


@tilec.jit
def top_p(Probs, P, Draw, rows: int = 2):
    """Draws from the fewest largest probabilities whose sum reaches P: a threshold is halved, then the first
    place is taken where the running sum passes the drawn share."""
    M, N = T.const("M N")
    Probs: T.Tensor[[M, N], T.float32]
    P: T.Tensor[[M], T.float32]
    Draw: T.Tensor[[M], T.float32]
    Token = T.empty((M,), T.int32)
    with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
        p, kept = T.alloc_fragment((rows, N), T.float32), T.alloc_fragment((rows, N), T.float32)
        run, place = T.alloc_shared((rows, N), T.float32), T.alloc_fragment((rows, N), T.int32)
        low, high, mass = (T.alloc_fragment((rows,), T.float32) for _ in range(3))
        found = T.alloc_fragment((rows,), T.int32)
        T.copy(Probs[bx * rows, 0], p)
        T.clear(low)
        T.reduce_max(p, high, dim=1)
        for _ in T.serial(40):
            for i, j in T.Parallel(rows, N):
                kept[i, j] = T.if_then_else(p[i, j] > (low[i] + high[i]) * 0.5, p[i, j], 0.0)
            T.reduce_sum(kept, mass, dim=1)
            for i in T.Parallel(rows):
                middle = (low[i] + high[i]) * 0.5
                low[i] = T.if_then_else(mass[i] >= P[bx * rows + i], middle, low[i])
                high[i] = T.if_then_else(mass[i] >= P[bx * rows + i], high[i], middle)
        for i, j in T.Parallel(rows, N):
            kept[i, j] = p[i, j] if p[i, j] > low[i] else 0.0
        T.reduce_sum(kept, mass, dim=1)
        T.copy(kept, run)
        T.cumsum(run, dim=1)
        for i, j in T.Parallel(rows, N):
            place[i, j] = T.if_then_else(run[i, j] > mass[i] * Draw[bx * rows + i], j, N - 1)
        T.reduce_min(place, found, dim=1)
        for i in T.Parallel(rows):
            Token[bx * rows + i] = found[i]
    return Token


# ---- references and inputs ----


def _largest(logits, k):
    ids = np.argsort(-logits, 1, kind="stable")[:, :k]
    return np.take_along_axis(logits, ids, 1), ids.astype(np.int32)


def topk_repeated_reference(logits, topk=6):
    return _largest(logits, topk)


def topk_sorted_reference(X, topk=8):
    return _largest(X, topk)


def topk_sorted_inputs(dims, rng):
    """Few values, so that many are equal."""
    return [rng.integers(0, 30, (dims["M"], dims["N"])) * 0.5]


def topk_radix_reference(input, topk=16):
    return np.sort(_largest(input, topk)[1], 1)


def topk_radix_inputs(dims, rng, topk=16):
    assert dims["seq_len"] >= topk, "a row has as many"
    return [rng.standard_normal((dims["batch"], dims["seq_len"]))]


def indexer_logits_reference(IndexQ, IndexK, IndexKScale, Weights, CuSeqLenKS, CuSeqLenKE):
    S, H = Weights.shape
    scores = np.maximum(wide(IndexQ).reshape(S, H, -1) @ wide(IndexK).T, 0)
    logits = (scores * Weights[:, :, None]).sum(1) * IndexKScale
    n = np.arange(len(IndexK))
    return np.where((n >= CuSeqLenKS[:, None]) & (n < CuSeqLenKE[:, None]), logits, -np.inf)


def indexer_logits_inputs(dims, rng):
    S, N, H, D = (dims[name] for name in ("seq_len", "seq_len_kv", "heads", "dim"))
    begin = rng.integers(0, N, S)
    end = begin + rng.integers(0, N, S)
    floats = [rng.standard_normal(shape) for shape in ((S * H, D), (N, D))]
    ends = [begin.astype(np.int32), np.minimum(end, N).astype(np.int32)]
    return [*floats, rng.uniform(0.5, 2, N), rng.uniform(0, 1, (S, H)), *ends]


def top_p_reference(Probs, P, Draw):
    out = np.zeros(len(Probs), np.int32)
    for row, (probs, p, draw) in enumerate(zip(Probs, P, Draw, strict=True)):
        order = np.argsort(-probs, kind="stable")
        count = int(np.searchsorted(np.cumsum(probs[order], dtype=np.float64), p)) + 1
        kept = np.zeros_like(probs, np.float64)
        kept[order[:count]] = probs[order[:count]]
        out[row] = int(np.argmax(np.cumsum(kept) > kept.sum() * draw))
    return out


def top_p_inputs(dims, rng):
    """Probabilities well apart, and draws far from the borders between two of them."""
    M, N = dims["M"], dims["N"]
    logits = rng.standard_normal((M, N)) * 3
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    draws, bounds = np.zeros(M), rng.uniform(0.3, 0.9, M)
    for row in range(M):
        order = np.argsort(-probs[row])
        sums = np.cumsum(probs[row][order])
        count = int(np.searchsorted(sums, bounds[row])) + 1
        bounds[row] = sums[count - 1] - probs[row][order[count - 1]] / 2
        steps = np.cumsum(np.where(np.isin(np.arange(N), order[:count]), probs[row], 0))
        largest = int(np.argmax(probs[row]))
        draws[row] = (steps[largest] - probs[row][largest] / 2) / steps[-1]
    return [probs, bounds, draws]


def main(argv=None):
    """Beside torch.topk, with the profiler's timers."""
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--M", type=int, default=32)
    parser.add_argument("--N", type=int, default=64)
    parser.add_argument("--topk", type=int, default=6)
    args = parser.parse_args(argv)
    kernel = topk_repeated(args.M, args.N, args.topk)
    profiler = kernel.get_profiler(tensor_supply_type=tilec.TensorSupplyType.Normal)

    def ref_program(logits):
        return torch.topk(logits, args.topk)

    def check(got, want):
        torch.testing.assert_close(got[0], want[0])
        torch.testing.assert_close(got[1].long(), want[1])

    profiler.manual_assert_close(ref_program, manual_check_prog=check)
    print(f"{profiler.do_bench(warmup=1):.4f} ms, torch {profiler.do_bench(ref_program, warmup=1):.4f} ms")


if __name__ == "__main__":
    main()
