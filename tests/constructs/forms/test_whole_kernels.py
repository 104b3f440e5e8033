"""Whole kernels as people write them, beside NumPy: Hadamard transforms through shared memory and lanes,
rotations whose frequencies are stretched (YaRN), experts with a shared one among them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from agree import agree, halves, numbers

import tilec.language as T


def transformed(x):
    """The Hadamard transform of rows, in the order of Sylvester's matrices."""
    matrix = np.ones((1, 1))
    while len(matrix) < x.shape[1]:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return x.astype(np.float64) @ matrix


def hadamard(n, rows=8):
    M, steps = T.dynamic("M"), int(math.log2(n))

    @T.prim_func
    def main(X: T.Tensor((M, n), "float16"), Y: T.Tensor((M, n), "float32")):
        with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
            s, t = T.alloc_shared((rows, n), "float32"), T.alloc_fragment((rows, n), "float32")
            T.copy(X[bx * rows, 0], s)
            for step in T.serial(steps):
                for i, j in T.Parallel(rows, n):
                    other = s[i, j ^ (1 << step)]
                    t[i, j] = T.if_then_else((j >> step) & 1 == 0, s[i, j] + other, other - s[i, j])
                T.copy(t, s)
            T.copy(s, Y[bx * rows, 0])

    return main


def hadamard_of_lanes(n):
    M, each = T.dynamic("M"), n // 32

    @T.prim_func
    def main(X: T.Tensor((M, n), "float16"), Y: T.Tensor((M, n), "float32")):
        with T.Kernel(M, threads=32) as bx:
            lane = T.get_thread_binding()
            v = T.alloc_local((each,), "float32")
            for k in T.serial(each):
                v[k] = X[bx, lane * each + k]
            for step in T.unroll(int(math.log2(each))):
                for pair in T.serial(each // 2):
                    low = (pair >> step << (step + 1)) + (pair & ((1 << step) - 1))
                    a, b = v[low], v[low + (1 << step)]
                    v[low] = a + b
                    v[low + (1 << step)] = a - b
            for step in T.serial(5):
                for k in T.serial(each):
                    other = T.shfl_xor(v[k], 1 << step)
                    v[k] = T.if_then_else((lane >> step) & 1 == 0, v[k] + other, other - v[k])
            for k in T.serial(each):
                Y[bx, lane * each + k] = v[k]

    return main


@pytest.mark.parametrize("kernel", [hadamard, hadamard_of_lanes])
def test_hadamard_transforms(kernel):
    x = halves(13, 128)
    agree(kernel(128), x, expected=transformed(x), rtol=0, atol=0)


def ramp_of(D, base, length, fast, slow):
    """Between which pairs of a head frequencies go over from kept to stretched (Peng et al., 2023)."""
    first, last = (D * math.log(length / (turns * math.tau)) / (2 * math.log(base)) for turns in (fast, slow))
    return max(math.floor(first), 0), min(math.ceil(last), D - 1)


def yarn(D, base=10000.0, factor=4.0, length=64, rows=16):
    S, H = T.dynamic("S, H")
    half, (low, high) = D // 2, ramp_of(D, base, length, 32.0, 1.0)
    scale = 0.1 * math.log(factor) + 1.0

    @T.prim_func
    def main(
        Q: T.Tensor((S, H, D), "float32"), at: T.Tensor((S,), "int64"), Y: T.Tensor((S, H, D), "float32")
    ):
        with T.Kernel(T.ceildiv(S, rows), H, threads=128) as (bx, h):
            q = T.alloc_shared((rows, D), "float32")
            turn, angle = T.alloc_fragment((half,), "float32"), T.alloc_fragment((rows, half), "float32")
            T.copy(Q[bx * rows : (bx + 1) * rows, h, :], q)
            for d in T.Parallel(half):
                ramp = T.clamp((T.cast(d, "float32") - low) / T.max(T.float32(high - low), 0.001), 0.0, 1.0)
                own = T.pow(T.float32(base), -T.cast(2 * d, "float32") / D)
                turn[d] = own / factor * ramp + own * (1.0 - ramp)
            for i, d in T.Parallel(rows, half):
                angle[i, d] = T.cast(at[bx * rows + i], "float32") * turn[d]
            for i, d in T.Parallel(rows, half):
                if bx * rows + i < S:
                    cos, sin = T.cos(angle[i, d]) * scale, T.sin(angle[i, d]) * scale
                    Y[bx * rows + i, h, d] = q[i, d] * cos - q[i, d + half] * sin
                    Y[bx * rows + i, h, d + half] = q[i, d + half] * cos + q[i, d] * sin

    return main


def test_rotations_of_stretched_frequencies():
    D, base, factor = 32, 10000.0, 4.0
    q, at = numbers(21, 3, D), np.arange(21) * 3
    low, high = ramp_of(D, base, 64, 32.0, 1.0)
    pairs = np.arange(D // 2)
    ramp, own = np.clip((pairs - low) / max(high - low, 0.001), 0, 1), base ** (-2 * pairs / D)
    angle = (at[:, None] * (own / factor * ramp + own * (1 - ramp)))[:, None]
    x, y, scale = q[..., : D // 2], q[..., D // 2 :], 0.1 * math.log(factor) + 1
    cos, sin = np.cos(angle) * scale, np.sin(angle) * scale
    wanted = np.concatenate([x * cos - y * sin, y * cos + x * sin], -1)
    agree(yarn(D), q, at, expected=wanted, rtol=1e-4, atol=1e-3)


def experts(H, F, E, bM=16, bN=32, bK=16):
    """Tiles of tokens, each of one expert; the last expert is for all tokens. Places without one: -1."""
    tokens, tiles = T.dynamic("tokens, tiles")

    @T.prim_func
    def main(
        X: T.Tensor((tokens, H), "float16"),
        Up: T.Tensor((E, 2, F, H), "float16"),
        Down: T.Tensor((E, H, F), "float16"),
        token: T.Tensor((tiles, bM), "int32"),
        expert: T.Tensor((tiles,), "int32"),
        weight: T.Tensor((tiles, bM), "float32"),
        Y: T.Tensor((tokens, H), "float32"),
    ):
        held = T.alloc_global((tiles * bM, F), "float16")
        with T.Kernel(T.ceildiv(F, bN), tiles, threads=128) as (bx, by):
            a, b = T.alloc_shared((bM, bK), "float16"), T.alloc_shared((2, bN, bK), "float16")
            gate, up = T.alloc_fragment((bM, bN), "float32"), T.alloc_fragment((bM, bN), "float32")
            T.clear(gate)
            T.clear(up)
            for ko in T.Pipelined(T.ceildiv(H, bK), num_stages=2):
                for i, j in T.Parallel(bM, bK):
                    a[i, j] = X[token[by, i], ko * bK + j]
                T.copy(Up[expert[by], 0:2, bx * bN : (bx + 1) * bN, ko * bK : (ko + 1) * bK], b)
                T.gemm(a, b[0, :, :], gate, transpose_B=True)
                T.gemm(a, b[1, :, :], up, transpose_B=True)
            for i, j in T.Parallel(bM, bN):
                held[by * bM + i, bx * bN + j] = gate[i, j] * T.sigmoid(gate[i, j]) * up[i, j]
        with T.Kernel(T.ceildiv(H, bN), tiles, threads=128) as (bx, by):
            a, b = T.alloc_shared((bM, bK), "float16"), T.alloc_shared((bN, bK), "float16")
            c = T.alloc_fragment((bM, bN), "float32")
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(F, bK), num_stages=2):
                T.copy(held[by * bM, ko * bK], a)
                T.copy(Down[expert[by], bx * bN, ko * bK], b)
                T.gemm(a, b, c, transpose_B=True)
            for i, j in T.Parallel(bM, bN):
                T.atomic_add(Y[token[by, i], bx * bN + j], c[i, j] * weight[by, i])

    return main


def dealt(chosen, weights, E, bM):
    """Tokens and weights of tiles, and the expert of each tile."""
    tiles = []
    for expert in range(E):
        rows = [
            (t, w)
            for t, own in enumerate(chosen)
            for e, w in zip(own, weights[t], strict=True)
            if e == expert
        ]
        for first in range(0, len(rows), bM):
            part = rows[first : first + bM]
            tiles.append((expert, [*part, *[(-1, 0.0)] * (bM - len(part))]))
    token = np.array([[row[0] for row in rows] for _, rows in tiles], np.int32)
    weight = np.array([[row[1] for row in rows] for _, rows in tiles], np.float32)
    return token, weight, np.array([expert for expert, _ in tiles], np.int32)


def test_experts_of_tokens_with_one_that_all_share():
    H, F, E, tokens, rng = 40, 48, 4, 23, np.random.default_rng(0)
    x, up, down = (
        (rng.standard_normal(shape) * 0.3).astype(np.float16)
        for shape in ((tokens, H), (E, 2, F, H), (E, H, F))
    )
    chosen = np.concatenate([rng.integers(0, E - 1, (tokens, 2)), np.full((tokens, 1), E - 1)], 1)
    weights = np.concatenate([rng.random((tokens, 2)), np.ones((tokens, 1))], 1)
    token, weight, expert = dealt(chosen, weights, E, 16)
    gate, value = np.einsum("th,ecfh->cetf", x.astype(np.float64), up.astype(np.float64))
    act = (gate / (1 + np.exp(-gate)) * value).astype(np.float16).astype(np.float64)
    each = np.einsum("etf,ehf->eth", act, down.astype(np.float64))
    wanted = sum(weights[:, [s]] * each[chosen[:, s], np.arange(tokens)] for s in range(3))
    start = np.zeros((tokens, H), np.float32)
    agree(experts(H, F, E), x, up, down, token, expert, weight, start, expected=wanted, rtol=1e-2, atol=1e-2)
