"""Products, each operand with K first or last."""

from random import Random
from typing import Any

import torch
from configs_families.family import Drawn, Family, Work, normal

import tilec
import tilec.language as T


def draw(of: Random) -> Drawn:
    """Tiles, threads, stages and forms."""
    dtype = of.choice(["float16", "float16", "bfloat16", "bfloat16", "float32", "int8", "float8_e4m3fn"])
    narrow = dtype in ("int8", "float8_e4m3fn")
    values = {
        "M": of.choice([1024, 1000, 4096, 2040]),
        "N": of.choice([1024, 1160, 4096]),
        "K": of.choice([1024, 1088, 4096]),
        "bM": of.choice([16, 32, 64, 64, 96, 128, 128, 128, 192, 256]),
        "bN": of.choice([16, 32, 48, 64, 64, 80, 96, 128, 128, 160, 192, 256]),
        "bK": of.choice([32, 64, 128] if narrow else [16, 32, 64, 64, 128]),
        "threads": of.choice([64, 128, 128, 256, 256, 384, 512]),
        "stages": of.randrange(6),
        "ta": not narrow and of.random() < 0.2,
        "tb": narrow or of.random() < 0.6,
        "dtype": dtype,
        "out": "int32" if dtype == "int8" else of.choice(["float16", "float32", "bfloat16"]),
        "form": of.choice(
            ["", "shared", "elements"] if dtype == "int8" else ["", "bias", "shared", "elements"]
        ),
    }
    size = {"float32": 4, "int8": 1, "float8_e4m3fn": 1}.get(dtype, 2)
    room = (values["bM"] + values["bN"]) * values["bK"] * size * max(values["stages"], 1)
    return values, room, values["bM"] * values["bN"]


@tilec.jit(out_idx=[-1])
def kernel(M, N, K, bM, bN, bK, threads, stages, ta, tb, dtype, out, form):
    """C = A B, each operand with K first or last; by ``form`` the result passes through shared memory, a bias
    is added, or elements are stored one by one."""

    @T.prim_func
    def main(
        A: T.Tensor((K, M) if ta else (M, K), dtype),
        B: T.Tensor((N, K) if tb else (K, N), dtype),
        bias: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), out),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            a = T.alloc_shared((bK, bM) if ta else (bM, bK), dtype)
            b = T.alloc_shared((bN, bK) if tb else (bK, bN), dtype)
            c = T.alloc_fragment((bM, bN), "int32" if dtype == "int8" else "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, bK), num_stages=stages):
                T.copy(A[k * bK, by * bM] if ta else A[by * bM, k * bK], a)
                T.copy(B[bx * bN, k * bK] if tb else B[k * bK, bx * bN], b)
                T.gemm(a, b, c, transpose_A=ta, transpose_B=tb)
            if form == "elements":
                for i, j in T.Parallel(bM, bN):
                    C[by * bM + i, bx * bN + j] = T.max(c[i, j], 0)
            elif form == "shared":
                held = T.alloc_shared((bM, bN), out)
                T.copy(c, held)
                T.copy(held, C[by * bM, bx * bN])
            else:
                if form == "bias":
                    for i, j in T.Parallel(bM, bN):
                        c[i, j] += bias[bx * bN + j]
                T.copy(c, C[by * bM, bx * bN])

    return main


def work(values: dict[str, Any]) -> Work:
    """Random numbers, and what torch makes of them."""
    rows, columns, depth = (values[name] for name in "MNK")
    dtype = getattr(torch, values["dtype"])
    a = normal(depth, rows) if values["ta"] else normal(rows, depth)
    b = normal(columns, depth) if values["tb"] else normal(depth, columns)
    a, b = ((each * (9 if dtype == torch.int8 else 1)).to(dtype) for each in (a, b))
    bias = normal(columns)
    wide, high = (
        (a.T if values["ta"] else a).float(),
        (b.T if values["tb"] else b).float(),
    )
    wanted = wide @ high
    if values["form"] == "bias":
        wanted = wanted + bias
    if values["form"] == "elements":
        wanted = wanted.clamp(min=0)
    half, other = wide.half(), high.half()
    return Work((a, b, bias), (wanted,), lambda: half @ other)


FAMILY = Family(draw, kernel, work)
