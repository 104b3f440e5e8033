"""Products over rows that belong together: experts of a mixture, ragged groups, patches of images."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from family_math import silu, wide

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def gathered_rows(tokens, places, experts, hidden, inter, bM=128, bN=128, bK=64, dtype="bfloat16"):
    """Gate and up of each block of places: rows of X by a list, weights of the block's expert."""

    @T.prim_func
    def main(
        X: T.Tensor((tokens, hidden), dtype),
        Gate: T.Tensor((experts, inter, hidden), dtype),
        Up: T.Tensor((experts, inter, hidden), dtype),
        token_of: T.Tensor((places,), "int32"),
        expert_of: T.Tensor((T.ceildiv(places, bM),), "int32"),
        Y: T.Tensor((places, inter), dtype),
    ):
        with T.Kernel(T.ceildiv(inter, bN), T.ceildiv(places, bM), threads=256) as (bx, by):
            rows = T.alloc_shared((bM,), "int32")
            X_shared = T.alloc_shared((bM, bK), dtype)
            gate_shared, up_shared = (T.alloc_shared((bN, bK), dtype) for _ in range(2))
            gate, up = (T.alloc_fragment((bM, bN), "float32") for _ in range(2))
            expert = expert_of[by]
            T.copy(token_of[by * bM], rows)
            T.clear(gate)
            T.clear(up)
            for ko in T.Pipelined(T.ceildiv(hidden, bK), num_stages=2):
                for i, j in T.Parallel(bM, bK):
                    X_shared[i, j] = X[rows[i], ko * bK + j]
                T.copy(Gate[expert, bx * bN : (bx + 1) * bN, ko * bK : (ko + 1) * bK], gate_shared)
                T.copy(Up[expert, bx * bN : (bx + 1) * bN, ko * bK : (ko + 1) * bK], up_shared)
                T.gemm(X_shared, gate_shared, gate, transpose_B=True)
                T.gemm(X_shared, up_shared, up, transpose_B=True)
            for i, j in T.Parallel(bM, bN):
                up[i, j] *= gate[i, j] * T.sigmoid(gate[i, j])
            T.copy(up, Y[by * bM, bx * bN])

    return main


@tilec.jit
def scattered_rows(tokens, places, experts, hidden, inter, bM=128, bN=128, bK=64, dtype="bfloat16"):
    """Down of each block of places, added to the rows of its tokens with the weights of the choice."""

    @T.prim_func
    def main(
        X: T.Tensor((places, inter), dtype),
        Down: T.Tensor((experts, hidden, inter), dtype),
        token_of: T.Tensor((places,), "int32"),
        expert_of: T.Tensor((T.ceildiv(places, bM),), "int32"),
        weights: T.Tensor((places,), "float32"),
        Y: T.Tensor((tokens, hidden), "float32"),
    ):
        with T.Kernel(T.ceildiv(hidden, bN), T.ceildiv(places, bM), threads=256) as (bx, by):
            X_shared, W_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            Y_local = T.alloc_fragment((bM, bN), "float32")
            expert = expert_of[by]
            T.clear(Y_local)
            for ko in T.Pipelined(T.ceildiv(inter, bK), num_stages=3):
                T.copy(X[by * bM, ko * bK], X_shared)
                T.copy(Down[expert, bx * bN : (bx + 1) * bN, ko * bK : (ko + 1) * bK], W_shared)
                T.gemm(X_shared, W_shared, Y_local, transpose_B=True)
            for i, j in T.Parallel(bM, bN):
                place = by * bM + i
                if place < places:
                    T.atomic_add(Y[token_of[place], bx * bN + j], Y_local[i, j] * weights[place])

    return main


@tilec.jit(out_idx=[-1])
def grouped_by_table(rows, groups, blocks, N, K, bM=128, bN=128, bK=64, dtype="bfloat16"):
    """A table says of each block of rows its group, its first row and the end of its group."""

    @T.prim_func
    def main(
        A: T.Tensor((rows, K), dtype),
        B: T.Tensor((groups, K, N), dtype),
        table: T.Tensor((blocks, 3), "int32"),
        C: T.Tensor((rows, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), blocks, threads=256) as (bx, by):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bK, bN), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            group, first, end = table[by, 0], table[by, 1], table[by, 2]
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=3):
                T.copy(A[first : first + bM, ko * bK : (ko + 1) * bK], A_shared)
                T.copy(B[group, ko * bK : (ko + 1) * bK, bx * bN : (bx + 1) * bN], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            for i, j in T.Parallel(bM, bN):
                if first + i < end:
                    C[first + i, bx * bN + j] = C_local[i, j]

    return main


@tilec.jit(out_idx=[-1])
def grouped_by_search(rows, groups, N, K, bM=128, bN=128, bK=64, dtype="bfloat16"):
    """Each block looks for its group among the ends of all; rows of a group come in whole blocks."""

    @T.prim_func
    def main(
        A: T.Tensor((rows, K), dtype),
        B: T.Tensor((groups, N, K), dtype),
        ends: T.Tensor((groups,), "int32"),
        C: T.Tensor((rows, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(rows, bM), threads=256) as (bx, by):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            C_shared = T.alloc_shared((bM, bN), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            group = T.alloc_var("int32")
            group = 0
            for g in T.serial(groups):
                if by * bM >= ends[g]:
                    group = g + 1
            if group < groups:
                T.clear(C_local)
                for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=3):
                    T.copy(A[by * bM, ko * bK], A_shared)
                    T.copy(B[group, bx * bN : (bx + 1) * bN, ko * bK : (ko + 1) * bK], B_shared)
                    T.gemm(A_shared, B_shared, C_local, transpose_B=True)
                T.copy(C_local, C_shared)
                T.copy(C_shared, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def grouped_unpadded(rows, groups, blocks, N, K, bM=128, bN=128, bK=64, dtype="bfloat16"):
    """Groups of any number of rows: each block counts the blocks of all groups until it finds its own."""

    @T.prim_func
    def main(
        A: T.Tensor((rows, K), dtype),
        B: T.Tensor((groups, N, K), dtype),
        starts: T.Tensor((groups + 1,), "int32"),
        C: T.Tensor((rows, N), dtype),
    ):
        with T.Kernel(blocks, T.ceildiv(N, bN), threads=256) as (by, bx):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            group = T.alloc_local((1,), "int32")
            inner = T.alloc_local((1,), "int32")
            passed = T.alloc_local((1,), "int32")
            group[0] = 0
            inner[0] = blocks
            passed[0] = 0
            for g in T.serial(groups):
                here = T.ceildiv(starts[g + 1] - starts[g], bM)
                is_own = T.And(by >= passed[0], by < passed[0] + here)
                group[0] = T.if_then_else(is_own, g, group[0])
                inner[0] = T.if_then_else(is_own, by - passed[0], inner[0])
                passed[0] += here
            first = starts[group[0]] + inner[0] * bM
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=3):
                T.copy(A[first : first + bM, ko * bK : (ko + 1) * bK], A_shared)
                T.copy(B[group[0], bx * bN : (bx + 1) * bN, ko * bK : (ko + 1) * bK], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            for i, j in T.Parallel(bM, bN):
                if first + i < starts[group[0] + 1]:
                    C[first + i, bx * bN + j] = C_local[i, j]

    return main


@tilec.jit(out_idx=[-1])
def grouped_walk(rows, groups, blocks, N, K, bM=128, bN=128, bK=64, dtype="bfloat16"):
    """Blocks that stay walk over tiles whose groups and rows a table has."""
    columns = T.ceildiv(N, bN)

    @T.prim_func
    def main(
        A: T.Tensor((rows, K), dtype),
        B: T.Tensor((groups, N, K), dtype),
        table: T.Tensor((blocks, 3), "int32"),
        C: T.Tensor((rows, N), dtype),
    ):
        with T.Kernel(132, threads=256) as b:
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            for wave in T.serial(T.ceildiv(blocks * columns, 132)):
                tile = wave * 132 + b
                if tile < blocks * columns:
                    by = tile // columns
                    bx = tile % columns
                    T.clear(C_local)
                    for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=3):
                        T.copy(A[table[by, 1], ko * bK], A_shared)
                        T.copy(B[table[by, 0], bx * bN, ko * bK], B_shared)
                        T.gemm(A_shared, B_shared, C_local, transpose_B=True)
                    for i, j in T.Parallel(bM, bN):
                        if table[by, 1] + i < table[by, 2]:
                            C[table[by, 1] + i, bx * bN + j] = C_local[i, j]

    return main


@tilec.jit
def grouped_masked(groups, M, N, K, bM=128, bN=128, bK=64, dtype="bfloat16"):
    """Room for M rows in every group, of which some are there: the other blocks leave."""

    @T.prim_func
    def main(
        A: T.Tensor((groups, M, K), dtype),
        B: T.Tensor((groups, N, K), dtype),
        counts: T.Tensor((groups,), "int32"),
        C: T.Tensor((groups, M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), groups, threads=256) as (bx, by, bz):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            if by * bM < counts[bz]:
                T.clear(C_local)
                for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=3):
                    T.copy(A[bz, by * bM : (by + 1) * bM, ko * bK : (ko + 1) * bK], A_shared)
                    T.copy(B[bz, bx * bN : (bx + 1) * bN, ko * bK : (ko + 1) * bK], B_shared)
                    T.gemm(A_shared, B_shared, C_local, transpose_B=True)
                for i, j in T.Parallel(bM, bN):
                    if by * bM + i < counts[bz]:
                        C[bz, by * bM + i, bx * bN + j] = C_local[i, j]

    return main


@tilec.jit(out_idx=[-1])
def grouped_gradient(rows, groups, N, K, bM=128, bN=128, bK=64, dtype="bfloat16"):
    """Gradients of the weights of groups: the summed axis is that of ragged rows, in whole steps."""

    @T.prim_func
    def main(
        A: T.Tensor((rows, K), dtype),
        dC: T.Tensor((rows, N), dtype),
        starts: T.Tensor((groups + 1,), "int32"),
        dB: T.Tensor((groups, K, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(K, bM), groups, threads=256) as (bx, by, bz):
            A_shared, dC_shared = T.alloc_shared((bK, bM), dtype), T.alloc_shared((bK, bN), dtype)
            acc = T.alloc_fragment((bM, bN), "float32")
            first = starts[bz]
            T.clear(acc)
            for step in T.Pipelined(T.ceildiv(starts[bz + 1] - first, bK), num_stages=3):
                T.copy(A[first + step * bK, by * bM], A_shared)
                T.copy(dC[first + step * bK, bx * bN], dC_shared)
                T.gemm(A_shared, dC_shared, acc, transpose_A=True)
            T.copy(acc, dB[bz, by * bM : (by + 1) * bM, bx * bN : (bx + 1) * bN])

    return main


@tilec.jit(out_idx=[-1])
def convolution_of_taps(batch, H, W, C, F, bM=128, bN=128, bK=64, dtype="float16"):
    """3 x 3 with an edge of zeros, channels last: loops over taps around the one over channels."""

    @T.prim_func
    def main(
        X: T.Tensor((batch, H, W, C), dtype),
        Wt: T.Tensor((3, 3, C, F), dtype),
        Y: T.Tensor((batch, H, W, F), dtype),
    ):
        with T.Kernel(T.ceildiv(F, bN), T.ceildiv(batch * H * W, bM), threads=256) as (bx, by):
            X_shared, W_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bK, bN), dtype)
            acc = T.alloc_fragment((bM, bN), "float32")
            flat = T.Tensor((batch * H * W, F), dtype, Y.data)
            T.clear(acc)
            for kh in T.serial(3):
                for kw in T.serial(3):
                    for ko in T.Pipelined(T.ceildiv(C, bK), num_stages=3):
                        for i, j in T.Parallel(bM, bK):
                            pixel = by * bM + i
                            h, w = pixel // W % H + kh - 1, pixel % W + kw - 1
                            inside = (h >= 0) & (h < H) & (w >= 0) & (w < W)
                            X_shared[i, j] = T.if_then_else(inside, X[pixel // (H * W), h, w, ko * bK + j], 0)
                        T.copy(Wt[kh, kw, ko * bK : (ko + 1) * bK, bx * bN : (bx + 1) * bN], W_shared)
                        T.gemm(X_shared, W_shared, acc)
            T.copy(acc, flat[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def convolution_im2col(batch, H, W, C, F, bM=128, bN=128, bK=64, dtype="float16"):
    """The same with T.im2col in one loop, out through a shared tile."""

    @T.prim_func
    def main(
        X: T.Tensor((batch, H, W, C), dtype),
        Wt: T.Tensor((3, 3, C, F), dtype),
        Y: T.Tensor((batch, H, W, F), dtype),
    ):
        with T.Kernel(T.ceildiv(F, bN), T.ceildiv(batch * H * W, bM), threads=256) as (bx, by):
            X_shared, W_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bK, bN), dtype)
            Y_shared = T.alloc_shared((bM, bN), dtype)
            acc = T.alloc_fragment((bM, bN), "float32")
            flat = T.Tensor((batch * H * W, F), dtype, Y.data)
            weights = T.Tensor((9 * C, F), dtype, Wt.data)
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(9 * C, bK), num_stages=3):
                T.im2col(X, X_shared, by, ko, 3, 1, 1, 1)
                T.copy(weights[ko * bK, bx * bN], W_shared)
                T.gemm(X_shared, W_shared, acc)
            T.copy(acc, Y_shared)
            T.copy(Y_shared, flat[by * bM, bx * bN])

    return main


# ---- references ----


def gathered_rows_reference(X, Gate, Up, token_of, expert_of, block=128):
    picked, experts = wide(X)[token_of], np.repeat(expert_of, block)[: len(token_of)]
    gate, up = (np.einsum("ph,pih->pi", picked, wide(W)[experts]) for W in (Gate, Up))
    return silu(gate) * up


def scattered_rows_reference(X, Down, token_of, expert_of, weights, Y, block=128):
    experts, sums = np.repeat(expert_of, block)[: len(token_of)], np.array(Y)
    np.add.at(sums, token_of, np.einsum("pi,phi->ph", wide(X), wide(Down)[experts]) * weights[:, None])
    return sums


def grouped_by_table_reference(A, B, table):
    C = np.zeros((len(A), B.shape[2]), np.float32)
    for group, first, end in table:
        rows = slice(first, min(first + 128, end))
        C[rows] = wide(A[rows]) @ wide(B[group])
    return C


def grouped_by_search_reference(A, B, ends):
    groups = np.searchsorted(ends, np.arange(len(A)), side="right")
    return np.stack([wide(row) @ wide(B[group]).T for row, group in zip(A, groups, strict=True)])


def grouped_unpadded_reference(A, B, starts, blocks=None):
    return np.concatenate(
        [wide(A[first:end]) @ wide(B[g]).T for g, (first, end) in enumerate(pairwise(starts))]
    )


def grouped_walk_reference(A, B, table):
    return grouped_by_table_reference(A, np.swapaxes(B, 1, 2), table)


def grouped_masked_reference(A, B, counts):
    done = np.full((*A.shape[:2], B.shape[1]), np.nan, np.float32)
    for group, count in enumerate(counts):
        done[group, :count] = wide(A[group, :count]) @ wide(B[group]).T
    return done


def grouped_gradient_reference(A, dC, starts):
    parts = pairwise(starts)
    return np.stack([wide(A[first:end]).T @ wide(dC[first:end]) for first, end in parts])


def convolution_reference(X, Wt):
    edged = np.pad(wide(X), ((0, 0), (1, 1), (1, 1), (0, 0)))
    _, H, W, _ = X.shape
    return sum(
        edged[:, kh : kh + H, kw : kw + W] @ wide(Wt[kh, kw]) for kh in range(3) for kw in range(3)
    )  # fmt: skip


# ---- inputs ----


def _blocks_of_experts(dims, rng):
    blocks = -(-dims["places"] // 128)
    return np.sort(rng.integers(0, dims["experts"], blocks)).astype(np.int32)


def _weights(rng, groups, rows, summed):
    """Small enough that sums are few units; one matrix, different by group in its sign and scale."""
    one = rng.standard_normal((rows, summed), np.float32) * summed**-0.5
    return one * (1 - 0.5 * np.arange(groups, dtype=np.float32) / groups)[:, None, None]


def gathered_rows_inputs(dims, rng):
    tokens, places, experts, hidden, inter = (
        dims[name] for name in ("tokens", "places", "experts", "hidden", "inter")
    )
    gate, up = (_weights(rng, experts, inter, hidden) for _ in range(2))
    token_of = rng.integers(0, tokens, places).astype(np.int32)
    return [
        rng.standard_normal((tokens, hidden), np.float32), gate, up, token_of, _blocks_of_experts(dims, rng)
    ]  # fmt: skip


def scattered_rows_inputs(dims, rng):
    tokens, places, experts, hidden, inter = (
        dims[name] for name in ("tokens", "places", "experts", "hidden", "inter")
    )
    token_of = rng.integers(0, tokens, places).astype(np.int32)
    return [
        rng.standard_normal((places, inter), np.float32), _weights(rng, experts, hidden, inter), token_of,
        _blocks_of_experts(dims, rng), rng.random(places, np.float32), np.zeros((tokens, hidden), np.float32),
    ]  # fmt: skip


def grouped_by_table_inputs(dims, rng):
    rows, groups, blocks, N, K = (dims[name] for name in ("rows", "groups", "blocks", "N", "K"))
    spare = blocks * 128 - rows  # rows that blocks may leave free: one ragged end for each group
    cuts = np.linspace(0, blocks, groups + 1).astype(int) * 128
    short = np.full(groups, spare // groups)
    short[: spare % groups] += 1
    starts = np.concatenate([[0], np.cumsum(np.diff(cuts) - short)])
    table = [
        (group, first, end)
        for group, (start, end) in enumerate(pairwise(starts))
        for first in range(start, end, 128)
    ]
    idle = [(0, 0, 0)] * (blocks - len(table))
    return [
        rng.standard_normal((rows, K), np.float32),
        _weights(rng, groups, K, N),
        np.array(table + idle, np.int32),
    ]


def grouped_by_search_inputs(dims, rng):
    rows, groups, N, K = (dims[name] for name in ("rows", "groups", "N", "K"))
    ends = np.linspace(0, rows // 128, groups + 1).astype(np.int32)[1:] * 128
    return [rng.standard_normal((rows, K), np.float32), _weights(rng, groups, N, K), ends]


def grouped_unpadded_inputs(dims, rng):
    rows, groups, N, K = (dims[name] for name in ("rows", "groups", "N", "K"))
    cuts = np.sort(rng.integers(0, rows + 1, groups - 1))
    starts = np.concatenate([[0], cuts, [rows]]).astype(np.int32)
    return [rng.standard_normal((rows, K), np.float32), _weights(rng, groups, N, K), starts]


def grouped_walk_inputs(dims, rng):
    rows, weights, table = grouped_by_table_inputs(dims, rng)
    return [rows, np.ascontiguousarray(np.swapaxes(weights, 1, 2)), table]


def grouped_masked_inputs(dims, rng):
    groups, M, N, K = (dims[name] for name in ("groups", "M", "N", "K"))
    counts = rng.integers(M // 4, 3 * M // 4, groups).astype(np.int32)
    return [rng.standard_normal((groups, M, K), np.float32), _weights(rng, groups, N, K), counts]


def grouped_gradient_inputs(dims, rng):
    rows, groups, N, K = (dims[name] for name in ("rows", "groups", "N", "K"))
    starts = np.linspace(0, rows // 64, groups + 1).astype(np.int32) * 64
    return [rng.standard_normal((rows, K), np.float32), rng.standard_normal((rows, N), np.float32), starts]
