"""Products whose dims are told by each call."""

from random import Random
from typing import Any

import torch
from configs_families.family import Drawn, Family, Work, normal

import tilec
import tilec.language as T


def draw(of: Random) -> Drawn:
    """Tiles, threads, stages and forms."""
    values = {
        "M": of.choice([1, 100, 777, 1024]),
        "N": of.choice([257, 512, 1000, 1160]),
        "K": of.choice([511, 512, 1000, 1001, 1088]),
        "bM": of.choice([16, 32, 64, 64, 128, 128]),
        "bN": of.choice([32, 64, 64, 96, 128, 128, 256]),
        "bK": of.choice([16, 32, 64, 64]),
        "threads": of.choice([64, 128, 128, 256, 256]),
        "stages": of.randrange(5),
        "ta": of.random() < 0.2,
        "tb": of.random() < 0.6,
        "dtype": of.choice(["float16", "bfloat16", "float32"]),
        "open": of.choice(["M", "MN", "MK", "NK", "MNK", "MNK"]),
        "form": of.choice(["", "bias", "gelu", "accumulate"]),
    }
    size = 4 if values["dtype"] == "float32" else 2
    room = size * (values["bM"] + values["bN"]) * values["bK"] * max(values["stages"], 1)
    return values, room, values["bM"] * values["bN"]


@tilec.jit(out_idx=[-1])
def kernel(M, N, K, bM, bN, bK, threads, stages, ta, tb, dtype, open, form):
    """By ``form`` a bias is added, an activation follows, or what another tensor has is added."""
    M, N, K = (
        T.dynamic(name.lower()) if name in open else size for name, size in zip("MNK", (M, N, K), strict=True)
    )

    @T.prim_func
    def main(
        A: T.Tensor((K, M) if ta else (M, K), dtype),
        B: T.Tensor((N, K) if tb else (K, N), dtype),
        bias: T.Tensor((N,), "float32"),
        D: T.Tensor((M, N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            a = T.alloc_shared((bK, bM) if ta else (bM, bK), dtype)
            b = T.alloc_shared((bN, bK) if tb else (bK, bN), dtype)
            d = T.alloc_fragment((bM, bN), dtype)
            c = T.alloc_fragment((bM, bN), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, bK), num_stages=stages):
                T.copy(A[k * bK, by * bM] if ta else A[by * bM, k * bK], a)
                T.copy(B[bx * bN, k * bK] if tb else B[k * bK, bx * bN], b)
                T.gemm(a, b, c, transpose_A=ta, transpose_B=tb)
            if form == "accumulate":
                T.copy(D[by * bM, bx * bN], d)
                for i, j in T.Parallel(bM, bN):
                    c[i, j] += d[i, j]
            elif form:
                for i, j in T.Parallel(bM, bN):
                    c[i, j] += bias[bx * bN + j]
            if form == "gelu":
                for i, j in T.Parallel(bM, bN):
                    c[i, j] *= 0.5 * (1 + T.erf(c[i, j] * 0.70710678))
            T.copy(c, C[by * bM, bx * bN])

    return main


def work(values: dict[str, Any]) -> Work:
    """Random numbers, and what torch makes of them."""
    rows, columns, depth = (values[name] for name in "MNK")
    dtype = getattr(torch, values["dtype"])
    a, b = normal(rows, depth, dtype=dtype), normal(columns, depth, dtype=dtype)
    bias, added = normal(columns), normal(rows, columns, dtype=dtype)
    wanted = a.float() @ b.float().T
    if values["form"] == "accumulate":
        wanted = wanted + added.float()
    elif values["form"]:
        wanted = wanted + bias
    if values["form"] == "gelu":
        wanted = torch.nn.functional.gelu(wanted)
    given = (a.T.contiguous() if values["ta"] else a, b if values["tb"] else b.T.contiguous())
    half, other = a.half(), b.half()
    return Work((*given, bias, added), (wanted,), lambda: half @ other.T)


FAMILY = Family(draw, kernel, work)
