"""Attention whose keys are gathered: pages smaller than a tile, of its size and larger, single rows, whole
blocks that a mask picks; and dropout by Philox, which gathers nothing and draws for every pair."""

from __future__ import annotations

import numpy as np
from family_math import LOG2_E, attend, visible, wide
from online_softmax import FAST, FULL_ROW, vectors, weigh

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1], pass_configs=FAST)
def paged(
    B, Sq, H, Hkv, D, pages, longest, page=64, bM=128, bN=64, num_stages=2, threads=256, dtype="float16"
):
    """Causal prefill over a cache in pages: key n of sequence b is row n % page of page table[b, n // page].
    A tile of keys is several pages, one, or a part of one. The last query sees the last key."""
    scale = (1.0 / D) ** 0.5 * LOG2_E
    assert page % bN == 0 or bN % page == 0, "a tile of keys is whole pages, or a part of one"
    piece = min(page, bN)

    @T.prim_func
    def main(
        Q: T.Tensor([B, Sq, H, D], dtype),
        K: T.Tensor([pages, page, Hkv, D], dtype),
        V: T.Tensor([pages, page, Hkv, D], dtype),
        table: T.Tensor([B, longest], "int32"),
        lengths: T.Tensor([B], "int32"),
        O: T.Tensor([B, Sq, H, D], dtype),
    ):
        with T.Kernel(T.ceildiv(Sq, bM), H, B, threads=threads) as (bx, by, bz):
            Qs, Os = T.alloc_shared([bM, D], dtype), T.alloc_shared([bM, D], dtype)
            Ks, Vs = T.alloc_shared([bN, D], dtype), T.alloc_shared([bN, D], dtype)
            acc_s, P = T.alloc_fragment([bM, bN], "float32"), T.alloc_fragment([bM, bN], dtype)
            acc_o = T.alloc_fragment([bM, D], "float32")
            top, old, corr, part, total = vectors(bM)
            head = by // (H // Hkv)
            keys = lengths[bz]
            T.copy(Q[bz, bx * bM : (bx + 1) * bM, by, :], Qs)
            T.clear(acc_o)
            T.clear(total)
            T.fill(top, -(2.0**30))
            reach = T.max(T.min(keys, keys - Sq + (bx + 1) * bM), 0)
            for k in T.Pipelined(T.ceildiv(reach, bN), num_stages=num_stages):
                for p in T.unroll(bN // piece):
                    number = table[bz, (k * bN + p * piece) // page]
                    row = (k * bN + p * piece) % page
                    T.copy(K[number, row : row + piece, head, :], Ks[p * piece : (p + 1) * piece, :])
                    T.copy(V[number, row : row + piece, head, :], Vs[p * piece : (p + 1) * piece, :])
                T.gemm(Qs, Ks, acc_s, transpose_B=True, clear_accum=True, policy=FULL_ROW)
                for i, j in T.Parallel(bM, bN):
                    seen = k * bN + j <= keys - Sq + bx * bM + i
                    acc_s[i, j] = T.if_then_else(seen, acc_s[i, j], -T.infinity("float32"))
                weigh(acc_s, P, acc_o, top, old, corr, part, total, scale, bM, bN, D)
                T.gemm(P, Vs, acc_o, policy=FULL_ROW)
            for i, d in T.Parallel(bM, D):
                acc_o[i, d] /= total[i]
            T.copy(acc_o, Os)
            T.copy(Os, O[bz, bx * bM : (bx + 1) * bM, by, :])

    return main


@tilec.jit(out_idx=[-1], pass_configs=FAST)
def rows_gathered(
    B, Sk, H, Hkv, D, rows, blocks, group=128, bN=64, num_stages=2, threads=256, dtype="bfloat16"
):
    """Every block of ``group`` queries has a list of key rows; -1 stands for none. Rows of keys and values
    come one by one into the tile."""
    scale = (1.0 / D) ** 0.5 * LOG2_E

    @T.prim_func
    def main(
        Q: T.Tensor([B, blocks, group, H, D], dtype),
        K: T.Tensor([B, Sk, Hkv, D], dtype),
        V: T.Tensor([B, Sk, Hkv, D], dtype),
        indices: T.Tensor([B, blocks, rows], "int32"),
        O: T.Tensor([B, blocks, group, H, D], dtype),
    ):
        with T.Kernel(blocks, H, B, threads=threads) as (bx, by, bz):
            Qs, Os = T.alloc_shared([group, D], dtype), T.alloc_shared([group, D], dtype)
            Ks, Vs = T.alloc_shared([bN, D], dtype), T.alloc_shared([bN, D], dtype)
            acc_s, P = T.alloc_fragment([group, bN], "float32"), T.alloc_fragment([group, bN], dtype)
            acc_o = T.alloc_fragment([group, D], "float32")
            mask = T.alloc_fragment([bN], "bool")
            top, old, corr, part, total = vectors(group)
            head = by // (H // Hkv)
            T.copy(Q[bz, bx, :, by, :], Qs)
            T.clear(acc_o)
            T.clear(total)
            T.fill(top, -(2.0**30))
            for k in T.Pipelined(T.ceildiv(rows, bN), num_stages=num_stages):
                for j in T.Parallel(bN):
                    mask[j] = indices[bz, bx, k * bN + j] >= 0
                for j, d in T.Parallel(bN, D):
                    Ks[j, d] = K[bz, indices[bz, bx, k * bN + j], head, d]
                for i, j in T.Parallel(group, bN):
                    acc_s[i, j] = T.if_then_else(mask[j], 0, -T.infinity("float32"))
                T.gemm(Qs, Ks, acc_s, transpose_B=True, policy=FULL_ROW)
                weigh(acc_s, P, acc_o, top, old, corr, part, total, scale, group, bN, D)
                for j, d in T.Parallel(bN, D):
                    Vs[j, d] = V[bz, indices[bz, bx, k * bN + j], head, d]
                T.gemm(P, Vs, acc_o, policy=FULL_ROW)
            for i, d in T.Parallel(group, D):
                acc_o[i, d] /= total[i]
            T.copy(acc_o, Os)
            T.copy(Os, O[bz, bx, :, by, :])

    return main


@tilec.jit(out_idx=[-1], pass_configs=FAST)
def masked_blocks(B, H, S, D, blocks, bM=128, bN=128, num_stages=2, threads=256, dtype="float16"):
    """A byte for each block of queries and keys: a branch around loads and products."""
    scale = (1.0 / D) ** 0.5 * LOG2_E
    shape = [B, H, S, D]

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        mask: T.Tensor([B, H, blocks, blocks], "int8"),
        O: T.Tensor(shape, dtype),
    ):
        with T.Kernel(T.ceildiv(S, bM), H, B, threads=threads) as (bx, by, bz):
            Qs, Os = T.alloc_shared([bM, D], dtype), T.alloc_shared([bM, D], dtype)
            Ks, Vs = T.alloc_shared([bN, D], dtype), T.alloc_shared([bN, D], dtype)
            acc_s, P = T.alloc_fragment([bM, bN], "float32"), T.alloc_fragment([bM, bN], dtype)
            acc_o = T.alloc_fragment([bM, D], "float32")
            top, old, corr, part, total = vectors(bM)
            T.copy(Q[bz, by, bx * bM : (bx + 1) * bM, :], Qs)
            T.clear(acc_o)
            T.clear(total)
            T.fill(top, -(2.0**30))
            for k in T.Pipelined(T.ceildiv(S, bN), num_stages=num_stages):
                if mask[bz, by, bx, k] != 0:
                    T.copy(K[bz, by, k * bN : (k + 1) * bN, :], Ks)
                    T.clear(acc_s)
                    T.gemm(Qs, Ks, acc_s, transpose_B=True, policy=FULL_ROW)
                    weigh(acc_s, P, acc_o, top, old, corr, part, total, scale, bM, bN, D)
                    T.copy(V[bz, by, k * bN : (k + 1) * bN, :], Vs)
                    T.gemm(P, Vs, acc_o, policy=FULL_ROW)
            for i, d in T.Parallel(bM, D):
                acc_o[i, d] /= T.max(total[i], 1e-30)
            T.copy(acc_o, Os)
            T.copy(Os, O[bz, by, bx * bM : (bx + 1) * bM, :])

    return main


def philox(column, row, stream, seed, rounds=7):
    """The first word of Philox4x32 at counter (column, row, stream, 0), key (seed, 0): Salmon et al."""
    words = [T.cast(column, "uint32"), T.cast(row, "uint32"), T.cast(stream, "uint32"), T.uint32(0)]
    key = [T.cast(seed, "uint32"), T.uint32(0)]
    for _ in range(rounds):
        first = T.cast(words[0], "uint64") * T.uint64(0xD2511F53)
        second = T.cast(words[2], "uint64") * T.uint64(0xCD9E8D57)
        low = [T.cast(each & T.uint64(0xFFFFFFFF), "uint32") for each in (first, second)]
        high = [T.cast(each >> T.uint64(32), "uint32") for each in (first, second)]
        words = [high[1] ^ words[1] ^ key[0], low[1], high[0] ^ words[3] ^ key[1], low[0]]
        key = [key[0] + T.uint32(0x9E3779B9), key[1] + T.uint32(0xBB67AE85)]
    return words[0]


@tilec.jit(out_idx=[-1], pass_configs=FAST)
def dropped(B, S, H, D, keep=0.9, bM=128, bN=64, num_stages=2, threads=256, dtype="float16"):
    """Weights are dropped with probability 1 - keep after the softmax: the sum has them all, the output has
    those that stay. One draw for each pair, the counter is its place."""
    scale = (1.0 / D) ** 0.5 * LOG2_E
    limit = int(keep * 2**32)
    shape = [B, S, H, D]

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        seed: T.int32,
        O: T.Tensor(shape, dtype),
    ):
        with T.Kernel(T.ceildiv(S, bM), H, B, threads=threads) as (bx, by, bz):
            Qs, Os = T.alloc_shared([bM, D], dtype), T.alloc_shared([bM, D], dtype)
            Ks, Vs = T.alloc_shared([bN, D], dtype), T.alloc_shared([bN, D], dtype)
            acc_s, P = T.alloc_fragment([bM, bN], "float32"), T.alloc_fragment([bM, bN], dtype)
            acc_o = T.alloc_fragment([bM, D], "float32")
            top, old, corr, part, total = vectors(bM)
            T.copy(Q[bz, bx * bM : (bx + 1) * bM, by, :], Qs)
            T.clear(acc_o)
            T.clear(total)
            T.fill(top, -T.infinity("float32"))
            for k in T.Pipelined(T.ceildiv(S, bN), num_stages=num_stages):
                T.copy(K[bz, k * bN : (k + 1) * bN, by, :], Ks)
                for i, j in T.Parallel(bM, bN):
                    acc_s[i, j] = T.if_then_else(k * bN + j >= S, -T.infinity("float32"), 0)
                T.gemm(Qs, Ks, acc_s, transpose_B=True, policy=FULL_ROW)
                weigh(acc_s, P, acc_o, top, old, corr, part, total, scale, bM, bN, D)
                for i, j in T.Parallel(bM, bN):
                    drawn = philox(k * bN + j, bx * bM + i, bz * H + by, seed)
                    P[i, j] = T.if_then_else(drawn < T.uint32(limit), acc_s[i, j], 0)
                T.copy(V[bz, k * bN : (k + 1) * bN, by, :], Vs)
                T.gemm(P, Vs, acc_o, policy=FULL_ROW)
            for i, d in T.Parallel(bM, D):
                acc_o[i, d] = acc_o[i, d] / (total[i] * keep)
            T.copy(acc_o, Os)
            T.copy(Os, O[bz, bx * bM : (bx + 1) * bM, by, :])

    return main


# ---- references and inputs ----


def paged_reference(Q, K, V, table, lengths):
    out, (Sq, H), Hkv = np.zeros(Q.shape, np.float32), Q.shape[1:3], K.shape[2]
    for b, h in np.ndindex(len(lengths), H):
        n, g = int(lengths[b]), h * Hkv // H
        k, v = (x[table[b]].reshape(-1, *x.shape[2:])[:n, g] for x in (K, V))
        out[b, :, h] = attend(Q[b, :, h], k, v, visible(Sq, n, causal=True))[0]
    return out


def paged_inputs(dims, rng):
    """Every sequence has at least as many keys as queries; its pages are its own."""
    names = ("B", "Sq", "H", "Hkv", "D", "pages", "longest", "page")
    B, Sq, H, Hkv, D, pages, longest, page = (dims[name] for name in names)
    assert pages >= B * longest, "pages of their own"
    q = rng.standard_normal((B, Sq, H, D))
    k, v = (rng.standard_normal((pages, page, Hkv, D)) for _ in range(2))
    table = rng.permutation(pages)[: B * longest].reshape(B, longest).astype(np.int32)
    return [q, k, v, table, rng.integers(Sq, longest * page + 1, B).astype(np.int32)]


def rows_gathered_reference(Q, K, V, indices):
    out, groups = np.zeros(Q.shape, np.float32), Q.shape[3] // K.shape[2]
    for b, n, h in np.ndindex(Q.shape[0], Q.shape[1], Q.shape[3]):
        rows = indices[b, n][indices[b, n] >= 0]
        out[b, n, :, h] = attend(Q[b, n, :, h], K[b, rows, h // groups], V[b, rows, h // groups])[0]
    return out


def rows_gathered_inputs(dims, rng, group=128):
    """Different rows as far as there are so many; a third of the places holds none."""
    B, Sk, H, Hkv, D, rows, blocks = (dims[x] for x in ("B", "Sk", "H", "Hkv", "D", "rows", "blocks"))
    places = [rng.permutation(max(Sk, rows))[:rows] % Sk for _ in range(B * blocks)]
    indices = np.stack(places).reshape(B, blocks, rows)
    indices = np.where(rng.uniform(size=indices.shape) < 1 / 3, -1, indices)
    indices[:, :, 0] = 0
    kv = (B, Sk, Hkv, D)
    floats = [rng.standard_normal(shape) for shape in ((B, blocks, group, H, D), kv, kv)]
    return [*floats, indices.astype(np.int32)]


def masked_blocks_reference(Q, K, V, mask, block=128):
    out = np.zeros(Q.shape, np.float32)
    for b, h in np.ndindex(Q.shape[:2]):
        seen = np.kron(mask[b, h], np.ones((block, block), np.int8)) != 0
        out[b, h] = attend(Q[b, h], K[b, h], V[b, h], seen)[0]
    return out


def masked_blocks_inputs(dims, rng, block=128):
    """Half of the blocks, and those of the diagonal; the last row of blocks sees nothing."""
    B, H, S, D, blocks = (dims[name] for name in ("B", "H", "S", "D", "blocks"))
    assert blocks * block == S, "a byte for each block"
    mask = (rng.uniform(size=(B, H, blocks, blocks)) < 0.5) | np.eye(blocks, dtype=bool)
    mask[:, :, -1] = blocks == 1
    return [*(rng.standard_normal((B, H, S, D)) for _ in range(3)), mask.astype(np.int8)]


def philox_reference(counter, seed, rounds=7):
    """The first words of the counters, an array of four words each."""
    words, key, low = [np.uint64(0) + each for each in counter], [seed, 0], np.uint64(0xFFFFFFFF)
    for _ in range(rounds):
        first, second = np.uint64(0xD2511F53) * words[0], np.uint64(0xCD9E8D57) * words[2]
        shift, keys = np.uint64(32), [np.uint64(each) for each in key]
        words = [
            (second >> shift) ^ words[1] ^ keys[0],
            second & low,
            (first >> shift) ^ words[3] ^ keys[1],
            first & low,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return words[0]


def dropped_reference(Q, K, V, seed, keep=0.9):
    out, (S, H) = np.zeros(Q.shape, np.float32), Q.shape[1:3]
    row, column = (np.arange(S, dtype=np.uint64)[at] for at in ((slice(None), None), (None, slice(None))))
    for b, h in np.ndindex(Q.shape[0], H):
        drawn = philox_reference(
            (column + 0 * row, row + 0 * column, np.uint64(b * H + h), np.uint64(0)), int(seed)
        )
        _, _, weights = attend(Q[b, :, h], K[b, :, h], V[b, :, h])
        out[b, :, h] = weights * (drawn < int(keep * 2**32)) @ wide(V[b, :, h]) / keep
    return out


def dropped_inputs(dims, rng):
    shape = tuple(dims[name] for name in ("B", "S", "H", "D"))
    return [*(rng.standard_normal(shape) for _ in range(3)), 1234]
