"""Products of 4-bit weights."""

from random import Random
from typing import Any

import torch
from configs_families.family import Drawn, Family, Work, normal

import tilec
import tilec.language as T


def draw(of: Random) -> Drawn:
    """Tiles, threads, stages and forms."""
    values = {
        "M": of.choice([16, 64, 1024, 1000]),
        "N": of.choice([1024, 4096]),
        "K": of.choice([1024, 4096]),
        "group": of.choice([32, 64, 128]),
        "bM": of.choice([16, 32, 64, 128]),
        "bN": of.choice([32, 64, 128, 256]),
        "bK": of.choice([32, 64, 128]),
        "threads": of.choice([128, 256]),
        "stages": of.randrange(4),
        "form": of.choice(["registers", "turned"]),
    }
    return values, 0, values["bM"] * values["bN"]


@tilec.jit(out_idx=[-1])
def kernel(M, N, K, group, bM, bN, bK, threads, stages, form):
    """Y = X W^T with two 4-bit weights in a byte and a factor for each ``group``; by ``form`` they pass
    through shared memory or are the rows of the product."""
    turned = form == "turned"

    @T.prim_func
    def main(
        X: T.Tensor((M, K), "float16"),
        W: T.Tensor((N, K // 2), "uint8"),
        factors: T.Tensor((N, K // group), "float16"),
        Y: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            x = T.alloc_shared((bM, bK), "float16")
            packed = T.alloc_shared((bN, bK // 2), "uint8")
            held = T.alloc_fragment((bN, bK // 2), "uint8")
            w = T.alloc_fragment((bN, bK), "float16")
            stored = T.alloc_shared((bN, bK), "float16")
            y = T.alloc_fragment((bN, bM) if turned else (bM, bN), "float32")
            T.clear(y)
            for k in T.Pipelined(K // bK, num_stages=stages):
                T.copy(X[by * bM, k * bK], x)
                T.copy(W[bx * bN, k * bK // 2], packed)
                T.copy(packed, held)
                for i, j in T.Parallel(bN, bK):
                    number = (held[i, j // 2] >> T.cast(j % 2 * 4, "uint8")) & T.uint8(15)
                    w[i, j] = (number.astype("float16") - 8) * factors[bx * bN + i, (k * bK + j) // group]
                if turned:
                    T.gemm(w, x, y, transpose_B=True)
                else:
                    T.copy(w, stored)
                    T.gemm(x, stored, y, transpose_B=True)
            if turned:
                for i, j in T.Parallel(bN, bM):
                    Y[by * bM + j, bx * bN + i] = y[i, j]
            else:
                T.copy(y, Y[by * bM, bx * bN])

    return main


def work(values: dict[str, Any]) -> Work:
    """Random numbers, and what torch makes of them."""
    rows, columns, depth = (values[name] for name in "MNK")
    x = normal(rows, depth).half()
    packed = torch.randint(0, 256, (columns, depth // 2)).to(torch.uint8)
    factors = (normal(columns, depth // values["group"]).abs() * 0.1).half()
    numbers = torch.stack([packed & 15, packed >> 4], -1).reshape(columns, depth).float() - 8
    weights = (numbers * factors.float().repeat_interleave(values["group"], 1)).half()
    return Work((x, packed, factors), (x.float() @ weights.float().T,), lambda: x @ weights.T)


FAMILY = Family(draw, kernel, work)
