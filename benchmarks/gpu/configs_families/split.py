"""Products of few rows whose depth is shared out over blocks, added by atomics or by a second launch."""

from random import Random
from typing import Any

import torch
from configs_families.family import Drawn, Family, Work, normal

import tilec
import tilec.language as T


def draw(of: Random) -> Drawn:
    """Tiles, threads, stages and forms."""
    values = {
        "M": of.choice([1, 5, 16, 64, 100]),
        "N": of.choice([512, 1160, 4096]),
        "K": of.choice([2048, 4096]),
        "bM": of.choice([8, 16, 16, 32, 64]),
        "bN": of.choice([16, 32, 64, 64, 128]),
        "bK": of.choice([32, 64, 64, 128]),
        "splits": of.choice([2, 3, 4, 8]),
        "threads": of.choice([64, 128, 128, 256]),
        "stages": of.randrange(5),
        "dtype": of.choice(["float16", "bfloat16"]),
        "form": of.choice(["atomic", "launch", "turned", "tiles"]),
    }
    room = 2 * (values["bM"] + values["bN"]) * values["bK"] * max(values["stages"], 1)
    return values, room, values["bM"] * values["bN"]


@tilec.jit(out_idx=[-1])
def kernel(M, N, K, bM, bN, bK, splits, threads, stages, dtype, form):
    """By ``form`` elements or a tile of shared memory are added, or a second launch adds what the first left;
    turned products have the weights' columns as rows."""
    turned, launch = form == "turned", form == "launch"
    trips = T.ceildiv(T.ceildiv(K, bK), splits)

    @T.prim_func
    def main(
        X: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K), dtype),
        Y: T.Tensor((M, N), "float32"),
    ):
        parts = T.alloc_global((splits, M, N), "float32")
        with T.Kernel(T.ceildiv(N, 128), M, threads=128) as (bx, by):
            for j in T.Parallel(128):
                Y[by, bx * 128 + j] = 0
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), splits, threads=threads) as (bx, by, bz):
            x = T.alloc_shared((bM, bK), dtype)
            w = T.alloc_shared((bN, bK), dtype)
            y = T.alloc_fragment((bN, bM) if turned else (bM, bN), "float32")
            held = T.alloc_shared((bM, bN), "float32")
            T.clear(y)
            for k in T.Pipelined(trips, num_stages=stages):
                T.copy(X[by * bM, (bz * trips + k) * bK], x)
                T.copy(W[bx * bN, (bz * trips + k) * bK], w)
                if turned:
                    T.gemm(w, x, y, transpose_B=True)
                else:
                    T.gemm(x, w, y, transpose_B=True)
            if launch:
                T.copy(y, parts[bz, by * bM : (by + 1) * bM, bx * bN : (bx + 1) * bN])
            elif turned:
                for j, i in T.Parallel(bN, bM):
                    T.atomic_add(Y[by * bM + i, bx * bN + j], y[j, i])
            elif form == "tiles":
                T.copy(y, held)
                T.atomic_add(Y[by * bM : (by + 1) * bM, bx * bN : (bx + 1) * bN], held)
            else:
                for i, j in T.Parallel(bM, bN):
                    T.atomic_add(Y[by * bM + i, bx * bN + j], y[i, j])
        if launch:
            with T.Kernel(T.ceildiv(N, 128), M, threads=128) as (bx, by):
                sums = T.alloc_fragment((128,), "float32")
                T.clear(sums)
                for s in range(splits):
                    for j in T.Parallel(128):
                        sums[j] += parts[s, by, bx * 128 + j]
                T.copy(sums, Y[by, bx * 128])

    return main


def work(values: dict[str, Any]) -> Work:
    """Random numbers, and what torch makes of them."""
    dtype = getattr(torch, values["dtype"])
    x = normal(values["M"], values["K"], dtype=dtype)
    w = normal(values["N"], values["K"], dtype=dtype)
    return Work((x, w), (x.float() @ w.float().T,), lambda: x @ w.T)


FAMILY = Family(draw, kernel, work, lambda values: values["form"] == "launch")
