"""Convolutions in (N, H, W, C) by products of what each tap reads."""

from random import Random
from typing import Any

import torch
from configs_families.family import Drawn, Family, Work, normal

import tilec
import tilec.language as T


def draw(of: Random) -> Drawn:
    """Tiles, threads, stages and forms."""
    values = {
        "N": 4,
        "H": of.choice([14, 28, 32]),
        "C": of.choice([32, 64, 96, 128]),
        "F": of.choice([32, 64, 128, 200]),
        "taps": of.choice([1, 3, 3, 5]),
        "stride": of.choice([1, 1, 2]),
        "padding": of.choice([0, 1]),
        "bM": of.choice([16, 32, 64, 64, 128]),
        "bN": of.choice([16, 32, 64, 64, 128]),
        "bK": of.choice([16, 32, 32, 64]),
        "threads": of.choice([64, 128, 128, 256]),
        "stages": of.randrange(4),
        "dtype": of.choice(["float16", "bfloat16"]),
        "form": of.choice(["im2col", "elements", "rows"]),
    }
    values["bK"] = min(values["bK"], values["C"])
    while values["C"] % values["bK"]:
        values["bK"] //= 2
    room = 2 * (values["bM"] + values["bN"]) * values["bK"] * max(values["stages"], 1)
    return values, room, values["bM"] * values["bN"]


@tilec.jit(out_idx=[-1])
def kernel(N, H, C, F, taps, stride, padding, bM, bN, bK, threads, stages, dtype, form):
    """By ``form`` T.c2d_im2col loads, or elements whose taps come from K's index, or from a loop's."""
    high = (H + 2 * padding - taps) // stride + 1
    depth = taps * taps * C

    @T.prim_func
    def main(
        X: T.Tensor((N, H, H, C), dtype),
        W: T.Tensor((taps, taps, C, F), dtype),
        Y: T.Tensor((N, high, high, F), dtype),
    ):
        flat = T.Tensor((depth, F), dtype, W.data)
        out = T.Tensor((N * high * high, F), dtype, Y.data)
        with T.Kernel(T.ceildiv(F, bN), T.ceildiv(N * high * high, bM), threads=threads) as (bx, by):
            x = T.alloc_shared((bM, bK), dtype)
            w = T.alloc_shared((bK, bN), dtype)
            y = T.alloc_fragment((bM, bN), "float32")
            T.clear(y)
            for k in T.Pipelined(depth // bK, num_stages=stages):
                if form == "im2col":
                    T.c2d_im2col(X, x, by, k, taps, stride, 1, padding)
                else:
                    for i, j in T.Parallel(bM, bK):
                        m = by * bM + i
                        at = k * bK // C if form == "rows" else (k * bK + j) // C
                        row = m // high % high * stride + at // taps - padding
                        column = m % high * stride + at % taps - padding
                        inside = m < N * high * high and row >= 0 and column >= 0 and row < H and column < H
                        x[i, j] = T.if_then_else(
                            inside, X[m // (high * high), row, column, (k * bK + j) % C], 0
                        )
                T.copy(flat[k * bK, bx * bN], w)
                T.gemm(x, w, y)
            T.copy(y, out[by * bM, bx * bN])

    return main


def work(values: dict[str, Any]) -> Work:
    """Random numbers, and what torch makes of them."""
    dtype, taps = getattr(torch, values["dtype"]), values["taps"]
    x = normal(values["N"], values["H"], values["H"], values["C"], dtype=dtype)
    w = normal(taps, taps, values["C"], values["F"], dtype=dtype)
    where = {"stride": values["stride"], "padding": values["padding"]}
    image, kernels = x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1)
    conv = torch.nn.functional.conv2d
    wanted = conv(image.float(), kernels.float(), **where).permute(0, 2, 3, 1)
    return Work((x, w), (wanted,), lambda: conv(image, kernels, **where))


FAMILY = Family(draw, kernel, work)
