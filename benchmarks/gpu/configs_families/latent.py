"""Decoding with latent keys (MLA): one tile is keys and values of all heads, beside keys that rotate."""

from random import Random
from typing import Any

import torch
from configs_families.family import LOG2_E, Drawn, Family, Work, normal

import tilec
import tilec.language as T


def draw(of: Random) -> Drawn:
    """Tiles, threads, stages and forms."""
    values = {
        "B": of.choice([1, 4]),
        "H": of.choice([16, 64, 128]),
        "S": of.choice([512, 1000, 2048]),
        "D": of.choice([128, 256, 512, 512]),
        "R": of.choice([32, 64]),
        "bH": of.choice([16, 32, 64, 64]),
        "bN": of.choice([16, 32, 64, 64]),
        "threads": of.choice([128, 256, 256, 384]),
        "stages": of.choice([0, 1, 2, 2]),
        "dtype": of.choice(["float16", "bfloat16"]),
        "form": of.choice(["columns", "rows", "shared", "lengths"]),
    }
    values["bH"] = min(values["bH"], values["H"])
    row = values["D"] + values["R"]
    room = 2 * (values["bH"] * (row + values["bN"]) + values["bN"] * row * max(values["stages"], 1))
    return values, room, values["bH"] * (values["D"] + values["bN"])


@tilec.jit(out_idx=[-1])
def kernel(B, H, S, D, R, bH, bN, threads, stages, dtype, form):
    """By ``form`` warps share columns or rows, weights are shared, or sequences have lengths."""
    scale = (D + R) ** -0.5 * LOG2_E
    policy = T.GemmWarpPolicy.FullRow if form == "rows" else T.GemmWarpPolicy.FullCol

    @T.prim_func
    def main(
        Q: T.Tensor((B, H, D), dtype),
        turned: T.Tensor((B, H, R), dtype),
        K: T.Tensor((B, S, D), dtype),
        rotated: T.Tensor((B, S, R), dtype),
        lengths: T.Tensor((B,), "int32"),
        out: T.Tensor((B, H, D), dtype),
    ):
        with T.Kernel(B, H // bH, threads=threads) as (b, h):
            q = T.alloc_shared((bH, D), dtype)
            qr = T.alloc_shared((bH, R), dtype)
            k = T.alloc_shared((bN, D), dtype)
            kr = T.alloc_shared((bN, R), dtype)
            held = T.alloc_shared((bH, bN), dtype)
            s = T.alloc_fragment((bH, bN), "float32")
            p = T.alloc_fragment((bH, bN), dtype)
            o = T.alloc_fragment((bH, D), "float32")
            m, old, alpha, total, part = (T.alloc_fragment((bH,), "float32") for _ in range(5))
            T.copy(Q[b, h * bH : (h + 1) * bH, :], q)
            T.copy(turned[b, h * bH : (h + 1) * bH, :], qr)
            T.fill(m, -T.infinity("float32"))
            T.clear(total)
            T.clear(o)
            length = lengths[b] if form == "lengths" else S
            for n in T.Pipelined(T.ceildiv(length, bN), num_stages=stages):
                T.copy(K[b, n * bN : (n + 1) * bN, :], k)
                T.copy(rotated[b, n * bN : (n + 1) * bN, :], kr)
                T.clear(s)
                T.gemm(q, k, s, transpose_B=True, policy=policy)
                T.gemm(qr, kr, s, transpose_B=True, policy=policy)
                for i, j in T.Parallel(bH, bN):
                    s[i, j] = T.if_then_else(n * bN + j < length, s[i, j], -T.infinity("float32"))
                T.copy(m, old)
                T.reduce_max(s, m, dim=1, clear=False)
                for i in T.Parallel(bH):
                    m[i] = T.max(m[i], old[i])
                    alpha[i] = T.exp2((old[i] - m[i]) * scale)
                for i, j in T.Parallel(bH, bN):
                    s[i, j] = T.exp2((s[i, j] - m[i]) * scale)
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(bH):
                    total[i] = total[i] * alpha[i] + part[i]
                for i, j in T.Parallel(bH, D):
                    o[i, j] *= alpha[i]
                if form == "shared":
                    T.copy(s, held)
                    T.gemm(held, k, o, policy=policy)
                else:
                    T.copy(s, p)
                    T.gemm(p, k, o, policy=policy)
            for i, j in T.Parallel(bH, D):
                o[i, j] /= total[i]
            T.copy(o, out[b, h * bH : (h + 1) * bH, :])

    return main


def work(values: dict[str, Any]) -> Work:
    """Random numbers, and what torch makes of them."""
    batch, heads, length, width, rotating = (values[name] for name in "BHSDR")
    dtype = getattr(torch, values["dtype"])
    q, turned = (normal(batch, heads, size, dtype=dtype, scale=1) for size in (width, rotating))
    k, rotated = (normal(batch, length, size, dtype=dtype, scale=1) for size in (width, rotating))
    lengths = torch.randint(1, length + 1, (batch,)).int()
    seen = torch.ones(batch, length, dtype=torch.bool)
    if values["form"] == "lengths":
        seen = torch.arange(length) < lengths[:, None]

    def peer(*tensors: torch.Tensor) -> torch.Tensor:
        first, second, keys, others = tensors
        logits = (first @ keys.transpose(1, 2) + second @ others.transpose(1, 2)) * (width + rotating) ** -0.5
        return logits.masked_fill(~seen[:, None], -torch.inf).softmax(-1) @ keys

    wanted = peer(*(each.float() for each in (q, turned, k, rotated)))
    inputs = (q, turned, k, rotated, lengths)
    return Work(inputs, (wanted,), lambda: peer(q, turned, k, rotated))


FAMILY = Family(draw, kernel, work)
