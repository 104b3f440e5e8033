"""Gated products, silu(X Wg^T) (X Wu^T), and two layers in one launch."""

from random import Random
from typing import Any

import torch
from configs_families.family import LOG2_E, Drawn, Family, Work, normal

import tilec
import tilec.language as T


def draw(of: Random) -> Drawn:
    """Tiles, threads, stages and forms."""
    values = {
        "M": of.choice([1024, 1000, 72]),
        "N": of.choice([1024, 1160, 512]),
        "K": of.choice([1024, 1088]),
        "bM": of.choice([16, 32, 64, 64, 128, 128]),
        "bN": of.choice([16, 32, 64, 64, 96, 128]),
        "bK": of.choice([32, 64, 64, 128]),
        "threads": of.choice([64, 128, 128, 256, 256, 384]),
        "stages": of.randrange(4),
        "dtype": of.choice(["float16", "bfloat16"]),
        "form": of.choice(["two", "packed", "halves", "shared"]),
    }
    room = 2 * (values["bM"] + 2 * values["bN"]) * values["bK"] * max(values["stages"], 1)
    return values, room, 2 * values["bM"] * values["bN"]


@tilec.jit(out_idx=[-1])
def kernel(M, N, K, bM, bN, bK, threads, stages, dtype, form):
    """Two products of the same X; by ``form`` their weights lie in two tiles, in the halves of one, or in one
    whose product's columns are the pairs, and the gate passes through shared memory."""
    packed, halves = form == "packed", form == "halves"

    @T.prim_func
    def main(
        X: T.Tensor((M, K), dtype),
        W: T.Tensor((2 * N, K), dtype),
        Y: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            x = T.alloc_shared((bM, bK), dtype)
            w = T.alloc_shared((2 * bN, bK), dtype)
            u = T.alloc_shared((bN, bK), dtype)
            both = T.alloc_fragment((bM, 2 * bN), "float32")
            gate = T.alloc_fragment((bM, bN), "float32")
            up = T.alloc_fragment((bM, bN), "float32")
            held = T.alloc_shared((bM, bN), dtype)
            T.clear(both)
            T.clear(gate)
            T.clear(up)
            for k in T.Pipelined(T.ceildiv(K, bK), num_stages=stages):
                T.copy(X[by * bM, k * bK], x)
                if packed:
                    T.copy(W[bx * 2 * bN, k * bK], w)
                    T.gemm(x, w, both, transpose_B=True)
                elif halves:
                    T.copy(W[bx * bN : bx * bN + bN, k * bK : (k + 1) * bK], w[:bN, :])
                    T.copy(W[N + bx * bN : N + bx * bN + bN, k * bK : (k + 1) * bK], w[bN:, :])
                    T.gemm(x, w[:bN, :], gate, transpose_B=True)
                    T.gemm(x, w[bN:, :], up, transpose_B=True)
                else:
                    T.copy(W[bx * bN, k * bK], w[:bN, :])
                    T.copy(W[N + bx * bN, k * bK], u)
                    T.gemm(x, w[:bN, :], gate, transpose_B=True)
                    T.gemm(x, u, up, transpose_B=True)
            if packed:
                pairs = T.alloc_shared((bM, 2 * bN), "float32")
                T.copy(both, pairs)
                for i, j in T.Parallel(bM, bN):
                    gate[i, j] = pairs[i, 2 * j]
                    up[i, j] = pairs[i, 2 * j + 1]
            for i, j in T.Parallel(bM, bN):
                gate[i, j] = gate[i, j] / (1 + T.exp2(-LOG2_E * gate[i, j])) * up[i, j]
            if form == "shared":
                T.copy(gate, held)
                T.copy(held, Y[by * bM, bx * bN])
            else:
                T.copy(gate, Y[by * bM, bx * bN])

    return main


def work(values: dict[str, Any]) -> Work:
    """Random numbers, and what torch makes of them."""
    dtype, columns = getattr(torch, values["dtype"]), values["N"]
    x = normal(values["M"], values["K"], dtype=dtype)
    w = normal(2 * columns, values["K"], dtype=dtype)

    def split(found: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (found[:, ::2], found[:, 1::2]) if values["form"] == "packed" else found.split(columns, 1)

    gate, up = split(x.float() @ w.float().T)
    wanted = torch.nn.functional.silu(gate) * up

    def peer() -> torch.Tensor:
        gate, up = split(x @ w.T)
        return torch.nn.functional.silu(gate) * up

    return Work((x, w), (wanted,), peer)


FAMILY = Family(draw, kernel, work)
