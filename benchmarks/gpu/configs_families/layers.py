"""Two layers in one launch: relu(X A^T) B^T, whose middle a block holds."""

from random import Random
from typing import Any

import torch
from configs_families.family import Drawn, Family, Work, normal

import tilec
import tilec.language as T


def draw(of: Random) -> Drawn:
    """Tiles, threads, stages and forms."""
    values = {
        "M": of.choice([1024, 1000, 4096]),
        "K": of.choice([64, 128, 256]),
        "H": of.choice([256, 512, 1024]),
        "N": of.choice([64, 96, 128]),
        "bM": of.choice([16, 32, 64, 64, 128]),
        "bH": of.choice([16, 32, 64, 64, 128]),
        "threads": of.choice([64, 128, 128, 256]),
        "stages": of.randrange(4),
        "dtype": of.choice(["float16", "bfloat16"]),
        "form": of.choice(["registers", "shared", "turned"]),
    }
    wide = values["K"] + values["N"]
    room = 2 * (values["bM"] * values["K"] + values["bH"] * wide * max(values["stages"], 1))
    return values, room, values["bM"] * (values["N"] + values["bH"])


@tilec.jit(out_idx=[-1])
def kernel(M, K, H, N, bM, bH, threads, stages, dtype, form):
    """The middle is cast in registers, passes through shared memory, or is made as its transpose."""
    turned = form == "turned"

    @T.prim_func
    def main(
        X: T.Tensor((M, K), dtype),
        A: T.Tensor((H, K), dtype),
        B: T.Tensor((N, H), dtype),
        bias: T.Tensor((H,), "float32"),
        Y: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(M, bM), threads=threads) as bx:
            x = T.alloc_shared((bM, K), dtype)
            a = T.alloc_shared((bH, K), dtype)
            b = T.alloc_shared((N, bH), dtype)
            h = T.alloc_fragment((bH, bM) if turned else (bM, bH), "float32")
            low = T.alloc_fragment((bM, bH), dtype)
            held = T.alloc_shared((bH, bM) if turned else (bM, bH), dtype)
            y = T.alloc_fragment((bM, N), "float32")
            T.clear(y)
            T.copy(X[bx * bM, 0], x)
            for k in T.Pipelined(H // bH, num_stages=stages):
                T.copy(A[k * bH, 0], a)
                T.copy(B[0, k * bH], b)
                T.clear(h)
                if turned:
                    T.gemm(a, x, h, transpose_B=True)
                    for j, i in T.Parallel(bH, bM):
                        h[j, i] = T.max(h[j, i] + bias[k * bH + j], 0)
                    T.copy(h, held)
                    T.gemm(held, b, y, transpose_A=True, transpose_B=True)
                else:
                    T.gemm(x, a, h, transpose_B=True)
                    for i, j in T.Parallel(bM, bH):
                        h[i, j] = T.max(h[i, j] + bias[k * bH + j], 0)
                    if form == "shared":
                        T.copy(h, held)
                        T.gemm(held, b, y, transpose_B=True)
                    else:
                        T.copy(h, low)
                        T.gemm(low, b, y, transpose_B=True)
            T.copy(y, Y[bx * bM, 0])

    return main


def work(values: dict[str, Any]) -> Work:
    """Random numbers, and what torch makes of them."""
    dtype = getattr(torch, values["dtype"])
    x = normal(values["M"], values["K"], dtype=dtype)
    a, b = normal(values["H"], values["K"], dtype=dtype), normal(values["N"], values["H"], dtype=dtype)
    bias = normal(values["H"])
    middle = (x.float() @ a.float().T + bias).relu().to(dtype)
    return Work((x, a, b, bias), (middle.float() @ b.float().T,), lambda: (x @ a.T).relu() @ b.T)


FAMILY = Family(draw, kernel, work)
