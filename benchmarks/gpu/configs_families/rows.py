"""Softmax and norms of rows, whole in a tile or block by block."""

from random import Random
from typing import Any

import torch
from configs_families.family import LOG2_E, Drawn, Family, Work, normal

import tilec
import tilec.language as T


def draw(of: Random) -> Drawn:
    """Tiles, threads, stages and forms."""
    values = {
        "M": of.choice([100, 1024, 4097]),
        "N": of.choice([80, 100, 128, 777, 1000, 1024, 2048, 3000, 4096]),
        "R": of.choice([1, 1, 2, 4, 8, 16]),
        "block": of.choice([64, 128, 256, 512, 1024]),
        "threads": of.choice([32, 64, 128, 128, 256]),
        "stages": of.randrange(3),
        "dtype": of.choice(["float16", "bfloat16", "float32"]),
        "form": of.choice(["softmax", "norm", "softmax by blocks", "norm by blocks", "shared"]),
    }
    if "blocks" not in values["form"]:
        values["block"] = values["N"]
    size = 4 if values["dtype"] == "float32" else 2
    room = size * values["R"] * values["block"] * max(values["stages"], 1)
    return values, room, values["R"] * values["block"]


@tilec.jit(out_idx=[-1])
def kernel(M, N, R, block, threads, stages, dtype, form):
    """R rows a block of the grid; by ``form`` the tile is as wide as the row, or a loop reads it twice."""

    @T.prim_func
    def softmax(X: T.Tensor((M, N), dtype), w: T.Tensor((N,), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, R), threads=threads) as bx:
            x = T.alloc_fragment((R, block), "float32")
            m, old, total, part = (T.alloc_fragment((R,), "float32") for _ in range(4))
            T.fill(m, -T.infinity("float32"))
            T.clear(total)
            for n in T.Pipelined(T.ceildiv(N, block), num_stages=stages):
                for i, j in T.Parallel(R, block):
                    inside = bx * R + i < M and n * block + j < N
                    x[i, j] = T.if_then_else(inside, X[bx * R + i, n * block + j], -T.infinity("float32"))
                T.copy(m, old)
                T.reduce_max(x, m, dim=1, clear=False)
                for i, j in T.Parallel(R, block):
                    x[i, j] = T.exp2((x[i, j] - m[i]) * LOG2_E)
                T.reduce_sum(x, part, dim=1)
                for i in T.Parallel(R):
                    total[i] = total[i] * T.exp2((old[i] - m[i]) * LOG2_E) + part[i]
            for n in T.Pipelined(T.ceildiv(N, block), num_stages=stages):
                for i, j in T.Parallel(R, block):
                    if bx * R + i < M and n * block + j < N:
                        Y[bx * R + i, n * block + j] = (
                            T.exp2((X[bx * R + i, n * block + j] - m[i]) * LOG2_E) / total[i]
                        )

    @T.prim_func
    def norm(X: T.Tensor((M, N), dtype), w: T.Tensor((N,), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, R), threads=threads) as bx:
            tile = T.alloc_shared((R, block), dtype)
            x = T.alloc_fragment((R, block), "float32")
            squares = T.alloc_fragment((R, block), "float32")
            total = T.alloc_fragment((R,), "float32")
            T.clear(squares)
            for n in T.Pipelined(T.ceildiv(N, block), num_stages=stages):
                T.copy(X[bx * R, n * block], tile)
                T.copy(tile, x)
                for i, j in T.Parallel(R, block):
                    squares[i, j] += x[i, j] * x[i, j]
            T.reduce_sum(squares, total, dim=1)
            for i in T.Parallel(R):
                total[i] = T.rsqrt(total[i] / N + 1e-5)
            for n in T.serial(T.ceildiv(N, block)):
                T.copy(X[bx * R, n * block], tile)
                for i, j in T.Parallel(R, block):
                    if n * block + j < N:
                        x[i, j] = tile[i, j] * total[i] * w[n * block + j]
                if form == "shared":
                    T.copy(x, tile)
                    T.copy(tile, Y[bx * R, n * block])
                else:
                    T.copy(x, Y[bx * R, n * block])

    return softmax if "softmax" in form else norm


def work(values: dict[str, Any]) -> Work:
    """Random numbers, and what torch makes of them."""
    dtype, width = getattr(torch, values["dtype"]), values["N"]
    x, w = normal(values["M"], width, dtype=dtype, scale=1), normal(width, dtype=dtype)

    def peer(x: torch.Tensor = x, w: torch.Tensor = w) -> torch.Tensor:
        if "softmax" in values["form"]:
            return x.softmax(-1)
        return torch.nn.functional.rms_norm(x, (width,), w, 1e-5)

    return Work((x, w), (peer(x.float(), w.float()),), peer)


FAMILY = Family(draw, kernel, work)
