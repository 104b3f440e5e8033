"""Attention as one writes it first."""

from random import Random
from typing import Any

import torch
from configs_families.family import LOG2_E, Drawn, Family, Work, normal

import tilec
import tilec.language as T


def draw(of: Random) -> Drawn:
    """Tiles, threads, stages and forms."""
    channels, causal = of.choice([32, 48, 64, 64, 80, 96, 112, 128, 128, 160, 192, 256]), of.random() < 0.5
    columns = of.choice([16, 32, 64, 64, 96, 128, 128, 176])
    length = of.choice([2048, 2000, 1024])
    values = {
        "B": 2,
        "S": length if causal else length // columns * columns,
        "H": 16,
        "G": of.choice([1, 4]),
        "D": channels,
        "DV": of.choice([channels, channels, channels, 64, 128]),
        "bM": of.choice([32, 64, 64, 128, 128, 192]),
        "bN": columns,
        "threads": of.choice([128, 128, 256, 256, 384]),
        "stages": of.choice([0, 1, 2, 2, 3]),
        "causal": causal,
        "dtype": of.choice(["float16", "bfloat16"]),
        "form": of.choice(["", "", "shared", "late", "sums"]),
    }
    rows, stages = values["bM"], max(values["stages"], 1)
    room = 2 * (rows * channels + columns * stages * (channels + values["DV"]))
    return values, room, rows * (values["DV"] + columns)


@tilec.jit(out_idx=[-1])
def kernel(B, S, H, G, D, DV, bM, bN, threads, stages, causal, dtype, form):
    """Attention of H heads over H / G, of D and DV channels; by ``form`` weights pass through shared memory,
    values are loaded behind the first product, or logarithms of sums are stored."""
    scale = D**-0.5 * LOG2_E

    @T.prim_func
    def main(
        Q: T.Tensor((B, S, H, D), dtype),
        K: T.Tensor((B, S, H // G, D), dtype),
        V: T.Tensor((B, S, H // G, DV), dtype),
        sums: T.Tensor((B, H, S), "float32"),
        out: T.Tensor((B, S, H, DV), dtype),
    ):
        with T.Kernel(T.ceildiv(S, bM), H, B, threads=threads) as (bx, h, b):
            q = T.alloc_shared((bM, D), dtype)
            k = T.alloc_shared((bN, D), dtype)
            v = T.alloc_shared((bN, DV), dtype)
            s = T.alloc_fragment((bM, bN), "float32")
            p = T.alloc_shared((bM, bN), dtype) if form == "shared" else T.alloc_fragment((bM, bN), dtype)
            o = T.alloc_fragment((bM, DV), "float32")
            m, old, alpha, total, part = (T.alloc_fragment((bM,), "float32") for _ in range(5))
            T.copy(Q[b, bx * bM : (bx + 1) * bM, h, :], q)
            T.fill(m, -T.infinity("float32"))
            T.clear(total)
            T.clear(o)
            for n in T.Pipelined(
                T.ceildiv((bx + 1) * bM, bN) if causal else T.ceildiv(S, bN), num_stages=stages
            ):
                T.copy(K[b, n * bN : (n + 1) * bN, h // G, :], k)
                if form != "late":
                    T.copy(V[b, n * bN : (n + 1) * bN, h // G, :], v)
                if causal:
                    for i, j in T.Parallel(bM, bN):
                        s[i, j] = T.if_then_else(bx * bM + i >= n * bN + j, 0, -T.infinity("float32"))
                else:
                    T.clear(s)
                T.gemm(q, k, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                if form == "late":
                    T.copy(V[b, n * bN : (n + 1) * bN, h // G, :], v)
                T.copy(m, old)
                T.reduce_max(s, m, dim=1, clear=False)
                for i in T.Parallel(bM):
                    alpha[i] = T.exp2(old[i] * scale - m[i] * scale)
                for i, j in T.Parallel(bM, bN):
                    s[i, j] = T.exp2(s[i, j] * scale - m[i] * scale)
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(bM):
                    total[i] = total[i] * alpha[i] + part[i]
                for i, j in T.Parallel(bM, DV):
                    o[i, j] *= alpha[i]
                T.copy(s, p)
                T.gemm(p, v, o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(bM, DV):
                o[i, j] /= total[i]
            T.copy(o, out[b, bx * bM : (bx + 1) * bM, h, :])
            if form == "sums":
                for i in T.Parallel(bM):
                    sums[b, h, bx * bM + i] = T.log2(total[i]) + m[i] * scale

    return main


def work(values: dict[str, Any]) -> Work:
    """Random numbers, and what torch makes of them."""
    batch, length, heads, groups = (values[name] for name in ("B", "S", "H", "G"))
    dtype, shared = getattr(torch, values["dtype"]), heads // groups
    q = normal(batch, length, heads, values["D"]).to(dtype)
    k = normal(batch, length, shared, values["D"]).to(dtype)
    v = normal(batch, length, shared, values["DV"]).to(dtype)
    sums = torch.zeros(batch, heads, length)

    def peer(widen: bool = False) -> torch.Tensor:
        turned = (each.transpose(1, 2).float() if widen else each.transpose(1, 2) for each in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(
            *turned, is_causal=values["causal"], enable_gqa=groups > 1
        )

    return Work((q, k, v, sums), (peer(widen=True).transpose(1, 2),), peer)


FAMILY = Family(draw, kernel, work)
