"""Products whose blocks go over several tiles: persistent ones, pieces of K that several share, batches."""

from random import Random
from typing import Any

import torch
from configs_families.family import Drawn, Family, Work, normal

import tilec
import tilec.language as T


def draw(of: Random) -> Drawn:
    """Tiles, threads, stages and forms."""
    values = {
        "E": of.choice([1, 3]),
        "M": of.choice([256, 1000]),
        "N": of.choice([512, 1160]),
        "K": of.choice([512, 1088]),
        "workers": of.choice([20, 132, 264]),
        "bM": of.choice([16, 32, 64, 64, 128, 128]),
        "bN": of.choice([32, 64, 64, 128, 128, 256]),
        "bK": of.choice([32, 64, 64]),
        "threads": of.choice([64, 128, 128, 256, 256, 384]),
        "stages": of.randrange(5),
        "tb": of.random() < 0.6,
        "dtype": of.choice(["float16", "bfloat16"]),
        "form": of.choice(["persistent", "serial", "while", "batches", "shared", "pieces"]),
    }
    room = 2 * (values["bM"] + values["bN"]) * values["bK"] * max(values["stages"], 1)
    return values, room, values["bM"] * values["bN"]


@tilec.jit(out_idx=[-1])
def kernel(E, M, N, K, workers, bM, bN, bK, threads, stages, tb, dtype, form):
    """Blocks make tiles by a loop of ``form``; ``pieces``: as many trips each, over ends of tiles."""
    high, wide, trips = T.ceildiv(M, bM), T.ceildiv(N, bN), T.ceildiv(K, bK)
    tiles = E * high * wide
    whole = (E, N, K) if tb else (E, K, N)
    share = -(-tiles * trips // workers)

    @T.macro
    def make(A, B, C, a, b, c, held, e, by, bx):
        T.clear(c)
        for k in T.Pipelined(trips, num_stages=stages):
            T.copy(A[e, by * bM : (by + 1) * bM, k * bK : (k + 1) * bK], a)
            if tb:
                T.copy(B[e, bx * bN : (bx + 1) * bN, k * bK : (k + 1) * bK], b)
            else:
                T.copy(B[e, k * bK : (k + 1) * bK, bx * bN : (bx + 1) * bN], b)
            T.gemm(a, b, c, transpose_B=tb)
        if form == "shared":
            T.copy(c, held)
            T.copy(held, C[e, by * bM : (by + 1) * bM, bx * bN : (bx + 1) * bN])
        else:
            T.copy(c, C[e, by * bM : (by + 1) * bM, bx * bN : (bx + 1) * bN])

    @T.prim_func
    def main(
        A: T.Tensor((E, M, K), dtype),
        B: T.Tensor(whole, dtype),
        C: T.Tensor((E, M, N), "float32"),
    ):
        if form == "pieces":
            with T.Kernel(T.ceildiv(N, 128), M, E, threads=128) as (bx, by, e):
                for j in T.Parallel(128):
                    C[e, by, bx * 128 + j] = 0
        with T.Kernel(workers, threads=threads) as w:
            a = T.alloc_shared((bM, bK), dtype)
            b = T.alloc_shared((bN, bK) if tb else (bK, bN), dtype)
            c = T.alloc_fragment((bM, bN), "float32")
            held = T.alloc_shared((bM, bN), "float32")
            if form == "persistent":
                for e, by, bx in T.Persistent([E, high, wide], workers, w):
                    make(A, B, C, a, b, c, held, e, by, bx)
            elif form == "while":
                tile = T.alloc_var("int32")
                tile = w
                while tile < tiles:
                    make(A, B, C, a, b, c, held, tile // (high * wide), tile // wide % high, tile % wide)
                    tile += workers
            elif form == "batches":
                for t in T.serial(T.ceildiv(high * wide, workers)):
                    if t * workers + w < high * wide:
                        for e in T.serial(E):
                            tile = t * workers + w
                            make(A, B, C, a, b, c, held, e, tile // wide, tile % wide)
            elif form == "pieces":
                at = T.alloc_var("int32")
                at = w * share
                end = T.min((w + 1) * share, tiles * trips)
                while at < end:
                    tile = at // trips
                    last = T.min((tile + 1) * trips, end)
                    e, by, bx = tile // (high * wide), tile // wide % high, tile % wide
                    T.clear(c)
                    for k in T.Pipelined(last - at, num_stages=stages):
                        kk = at - tile * trips + k
                        T.copy(A[e, by * bM : (by + 1) * bM, kk * bK : (kk + 1) * bK], a)
                        if tb:
                            T.copy(B[e, bx * bN : (bx + 1) * bN, kk * bK : (kk + 1) * bK], b)
                        else:
                            T.copy(B[e, kk * bK : (kk + 1) * bK, bx * bN : (bx + 1) * bN], b)
                        T.gemm(a, b, c, transpose_B=tb)
                    for i, j in T.Parallel(bM, bN):
                        T.atomic_add(C[e, by * bM + i, bx * bN + j], c[i, j])
                    at = last
            else:
                for t in T.serial(T.ceildiv(tiles, workers)):
                    tile = t * workers + w
                    if tile < tiles:
                        make(A, B, C, a, b, c, held, tile // (high * wide), tile // wide % high, tile % wide)

    return main


def work(values: dict[str, Any]) -> Work:
    """Random numbers, and what torch makes of them."""
    batch, rows, columns, depth = (values[name] for name in "EMNK")
    dtype = getattr(torch, values["dtype"])
    a, b = normal(batch, rows, depth, dtype=dtype), normal(batch, columns, depth, dtype=dtype)
    wanted = a.float() @ b.float().transpose(1, 2)
    passed = b if values["tb"] else b.transpose(1, 2).contiguous()
    return Work((a, passed), (wanted,), lambda: a @ b.transpose(1, 2))


FAMILY = Family(draw, kernel, work, lambda values: values["form"] != "pieces")
