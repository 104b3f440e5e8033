"""Products of experts: each block takes rows by a table, and weights by its expert."""

from random import Random
from typing import Any

import torch
from configs_families.family import Drawn, Family, Work, normal

import tilec
import tilec.language as T


def draw(of: Random) -> Drawn:
    """Tiles, threads, stages and forms."""
    values = {
        "M": of.choice([512, 1000]),
        "N": of.choice([512, 1160]),
        "K": of.choice([512, 1088]),
        "E": of.choice([2, 8]),
        "bM": of.choice([16, 32, 64, 64, 128]),
        "bN": of.choice([16, 32, 64, 64, 128, 160, 256]),
        "bK": of.choice([16, 32, 64, 64, 128]),
        "threads": of.choice([64, 128, 128, 256, 256]),
        "stages": of.randrange(4),
        "tb": of.random() < 0.6,
        "dtype": of.choice(["float16", "bfloat16"]),
        "form": of.choice(["store", "store", "store", "add"]),
    }
    room = 2 * (values["bM"] + values["bN"]) * values["bK"] * max(values["stages"], 1)
    return values, room, values["bM"] * values["bN"]


@tilec.jit(out_idx=[-1])
def kernel(M, N, K, E, bM, bN, bK, threads, stages, tb, dtype, form):
    """Rows are gathered by the table, results stored by it or, by ``form``, added by atomics."""
    rows, blocks = T.dynamic("rows, blocks")

    @T.prim_func
    def main(
        X: T.Tensor((M, K), dtype),
        W: T.Tensor((E, N, K) if tb else (E, K, N), dtype),
        table: T.Tensor((rows,), "int32"),
        expert: T.Tensor((blocks,), "int32"),
        Y: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, 128), M, threads=128) as (bx, by):
            for j in T.Parallel(128):
                Y[by, bx * 128 + j] = 0
        with T.Kernel(T.ceildiv(N, bN), blocks, threads=threads) as (bx, by):
            x = T.alloc_shared((bM, bK), dtype)
            w = T.alloc_shared((bN, bK) if tb else (bK, bN), dtype)
            y = T.alloc_fragment((bM, bN), "float32")
            T.clear(y)
            e = expert[by]
            for k in T.Pipelined(T.ceildiv(K, bK), num_stages=stages):
                for i, j in T.Parallel(bM, bK):
                    row = table[by * bM + i]
                    x[i, j] = T.if_then_else(row >= 0 and k * bK + j < K, X[row, k * bK + j], 0)
                if tb:
                    T.copy(W[e, bx * bN : (bx + 1) * bN, k * bK : (k + 1) * bK], w)
                else:
                    T.copy(W[e, k * bK : (k + 1) * bK, bx * bN : (bx + 1) * bN], w)
                T.gemm(x, w, y, transpose_B=tb)
            for i, j in T.Parallel(bM, bN):
                if table[by * bM + i] >= 0 and bx * bN + j < N:
                    if form == "add":
                        T.atomic_add(Y[table[by * bM + i], bx * bN + j], y[i, j])
                    else:
                        Y[table[by * bM + i], bx * bN + j] = y[i, j]

    return main


def work(values: dict[str, Any]) -> Work:
    """Random numbers, and what torch makes of them."""
    rows, columns, depth, experts = (values[name] for name in "MNKE")
    dtype, high = getattr(torch, values["dtype"]), values["bM"]
    x = normal(rows, depth, dtype=dtype)
    w = normal(experts, columns, depth, dtype=dtype)
    chosen = torch.randint(0, experts, (rows,))
    table, expert = [], []
    for each in range(experts):
        mine = (chosen == each).nonzero()[:, 0]
        padded = torch.full((-(-len(mine) // high) * high,), -1)
        padded[: len(mine)] = mine
        table.append(padded)
        expert += [each] * (len(padded) // high)
    wanted = torch.empty(rows, columns)
    for each in range(experts):
        wanted[chosen == each] = x[chosen == each].float() @ w[each].float().T
    passed = w if values["tb"] else w.transpose(1, 2).contiguous()
    inputs = (x, passed, torch.cat(table).int(), torch.tensor(expert, dtype=torch.int32))
    return Work(inputs, (wanted,), lambda: x @ w[0].T)


FAMILY = Family(draw, kernel, work)
