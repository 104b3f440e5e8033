"""Linear attention with a decay, chunk by chunk, whose state stays in the block."""

from random import Random
from typing import Any

import torch
from configs_families.family import Drawn, Family, Work, normal

import tilec
import tilec.language as T


def draw(of: Random) -> Drawn:
    """Tiles, threads, stages and forms."""
    values = {
        "B": 2,
        "S": of.choice([512, 1024]),
        "H": 8,
        "D": of.choice([32, 64, 64, 96, 128]),
        "DV": of.choice([64, 128]),
        "bV": of.choice([16, 32, 64, 64]),
        "C": of.choice([16, 32, 64, 64, 128]),
        "threads": of.choice([64, 128, 128, 256]),
        "stages": of.randrange(4),
        "dtype": of.choice(["float16", "bfloat16"]),
        "form": of.choice(["scaled keys", "scaled values", "states"]),
    }
    room = 2 * values["C"] * (3 * values["D"] + 2 * values["bV"]) * max(values["stages"], 1)
    room += 2 * (values["D"] * values["bV"] + values["C"] ** 2)
    return values, room, values["C"] * (values["C"] + values["bV"]) + values["D"] * values["bV"]


@tilec.jit(out_idx=[-2, -1])
def kernel(B, S, H, D, DV, bV, C, threads, stages, dtype, form):
    """By ``form`` keys or values are scaled by what is left of the decay, or each chunk's state is stored."""

    @T.prim_func
    def main(
        Q: T.Tensor((B, S, H, D), dtype),
        K: T.Tensor((B, S, H, D), dtype),
        V: T.Tensor((B, S, H, DV), dtype),
        decay: T.Tensor((H,), "float32"),
        out: T.Tensor((B, S, H, DV), dtype),
        last: T.Tensor((B, H, D, DV), "float32"),
    ):
        with T.Kernel(DV // bV, H, B, threads=threads) as (bx, h, b):
            q = T.alloc_shared((C, D), dtype)
            k = T.alloc_shared((C, D), dtype)
            v = T.alloc_shared((C, bV), dtype)
            scaled = T.alloc_shared((C, bV if form == "scaled values" else D), dtype)
            low = T.alloc_shared((D, bV), dtype)
            s = T.alloc_fragment((C, C), "float32")
            p = T.alloc_shared((C, C), dtype)
            o = T.alloc_fragment((C, bV), "float32")
            state = T.alloc_fragment((D, bV), "float32")
            T.clear(state)
            for n in T.Pipelined(S // C, num_stages=stages):
                T.copy(Q[b, n * C : (n + 1) * C, h, :], q)
                T.copy(K[b, n * C : (n + 1) * C, h, :], k)
                T.copy(V[b, n * C : (n + 1) * C, h, bx * bV : (bx + 1) * bV], v)
                T.clear(s)
                T.gemm(q, k, s, transpose_B=True)
                for i, j in T.Parallel(C, C):
                    s[i, j] = T.if_then_else(i >= j, s[i, j] * T.exp2((i - j) * decay[h]), 0.0)
                T.copy(s, p)
                T.copy(state, low)
                T.clear(o)
                T.gemm(q, low, o)
                for i, j in T.Parallel(C, bV):
                    o[i, j] *= T.exp2((i + 1) * decay[h])
                T.gemm(p, v, o)
                T.copy(o, out[b, n * C : (n + 1) * C, h, bx * bV : (bx + 1) * bV])
                for i, j in T.Parallel(D, bV):
                    state[i, j] *= T.exp2(C * decay[h])
                if form == "scaled values":
                    for i, j in T.Parallel(C, bV):
                        scaled[i, j] = v[i, j] * T.exp2((C - 1 - i) * decay[h])
                    T.gemm(k, scaled, state, transpose_A=True)
                else:
                    for i, j in T.Parallel(C, D):
                        scaled[i, j] = k[i, j] * T.exp2((C - 1 - i) * decay[h])
                    T.gemm(scaled, v, state, transpose_A=True)
            if form == "states":
                for i, j in T.Parallel(D, bV):
                    last[b, h, i, bx * bV + j] = state[i, j]
            else:
                T.copy(state, last[b, h, :, bx * bV : (bx + 1) * bV])

    return main


def work(values: dict[str, Any]) -> Work:
    """Random numbers, and what torch makes of them."""
    batch, length, heads = (values[name] for name in "BSH")
    dtype = getattr(torch, values["dtype"])
    q, k = (normal(batch, length, heads, values["D"], dtype=dtype) for _ in range(2))
    v = normal(batch, length, heads, values["DV"], dtype=dtype)
    decay = torch.log2(1 - torch.exp2(-4 - torch.arange(heads).float() / 4))
    place = torch.arange(length).float()
    distance = (place[:, None] - place)[None] * decay[:, None, None]
    factors = torch.where(place[:, None] >= place, torch.exp2(distance.clamp(max=0)), 0.0)
    turned = [each.float().transpose(1, 2) for each in (q, k, v)]
    left = torch.exp2((length - 1 - place) * decay[:, None])

    def peer() -> torch.Tensor:
        return ((turned[0] @ turned[1].transpose(2, 3)) * factors) @ turned[2]

    last = (turned[1] * left[None, ..., None]).transpose(2, 3) @ turned[2]
    return Work((q, k, v, decay), (peer().transpose(1, 2), last), peer)


FAMILY = Family(draw, kernel, work)
