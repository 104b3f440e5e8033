"""Products of fp8 numbers with a factor for each 128 of a row and each 128 x 128 of the weights."""

from random import Random
from typing import Any

import torch
from configs_families.family import Drawn, Family, Work, normal

import tilec
import tilec.language as T


def draw(of: Random) -> Drawn:
    """Tiles, threads, stages and forms."""
    values = {
        "M": of.choice([1024, 1000, 64]),
        "N": of.choice([1024, 2048]),
        "K": of.choice([1024, 2048]),
        "bM": of.choice([16, 32, 64, 64, 128, 128]),
        "bN": of.choice([32, 64, 96, 128, 128, 160, 256]),
        "threads": of.choice([64, 128, 128, 256, 256, 384]),
        "stages": of.randrange(5),
        "form": of.choice(["copied", "indexed", "shared"]),
    }
    room = (values["bM"] + values["bN"]) * 128 * max(values["stages"], 1)
    return values, room, 2 * values["bM"] * values["bN"]


@tilec.jit(out_idx=[-1])
def kernel(M, N, K, bM, bN, threads, stages, form):
    """Factors of rows are read where they are used, are copied to shared memory, or multiplied there."""
    fp8 = "float8_e4m3fn"

    @T.prim_func
    def main(
        A: T.Tensor((M, K), fp8),
        B: T.Tensor((N, K), fp8),
        rows: T.Tensor((M, K // 128), "float32"),
        blocks: T.Tensor((T.ceildiv(N, 128), K // 128), "float32"),
        C: T.Tensor((M, N), "bfloat16"),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            a = T.alloc_shared((bM, 128), fp8)
            b = T.alloc_shared((bN, 128), fp8)
            factors = T.alloc_shared((bM,), "float32")
            part = T.alloc_fragment((bM, bN), "float32")
            c = T.alloc_fragment((bM, bN), "float32")
            held = T.alloc_shared((bM, bN), "bfloat16")
            T.clear(c)
            T.clear(part)
            for k in T.Pipelined(K // 128, num_stages=stages):
                T.copy(A[by * bM, k * 128], a)
                T.copy(B[bx * bN, k * 128], b)
                if form == "copied":
                    for i in T.Parallel(bM):
                        factors[i] = rows[by * bM + i, k]
                elif form == "shared":
                    for i in T.Parallel(bM):
                        factors[i] = rows[by * bM + i, k] * blocks[bx * bN // 128, k]
                T.gemm(a, b, part, transpose_B=True)
                for i, j in T.Parallel(bM, bN):
                    if form == "shared":
                        c[i, j] += part[i, j] * factors[i]
                    elif form == "copied":
                        c[i, j] += part[i, j] * (factors[i] * blocks[(bx * bN + j) // 128, k])
                    else:
                        c[i, j] += part[i, j] * rows[by * bM + i, k] * blocks[(bx * bN + j) // 128, k]
                T.clear(part)
            if form == "shared":
                T.copy(c, held)
                T.copy(held, C[by * bM, bx * bN])
            else:
                T.copy(c, C[by * bM, bx * bN])

    return main


def work(values: dict[str, Any]) -> Work:
    """Random numbers, and what torch makes of them."""
    rows, columns, depth = (values[name] for name in "MNK")
    a, b = (normal(high, depth, dtype=torch.float8_e4m3fn) for high in (rows, columns))
    of_rows, of_blocks = normal(rows, depth // 128).abs(), normal(columns // 128, depth // 128).abs()
    if values["form"] == "shared" and 128 % values["bN"]:  # one factor for the whole tile
        of_blocks = of_blocks[:1].repeat(columns // 128, 1)
    wide = a.float() * of_rows.repeat_interleave(128, 1)
    high = b.float() * of_blocks.repeat_interleave(128, 0).repeat_interleave(128, 1)
    half, other = wide.bfloat16(), high.bfloat16()
    return Work((a, b, of_rows, of_blocks), (wide @ high.T,), lambda: half @ other.T)


FAMILY = Family(draw, kernel, work)
