"""Attention of one token: keys are shared out over blocks, a second launch joins their results."""

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
        "H": of.choice([16, 32]),
        "G": of.choice([1, 4, 8, 16]),
        "S": of.choice([1024, 2048]),
        "D": of.choice([64, 80, 96, 128, 128, 256]),
        "page": of.choice([16, 64, 128]),
        "bH": of.choice([16, 16, 32, 64]),
        "bN": of.choice([16, 32, 64, 64, 128]),
        "splits": of.choice([1, 2, 4]),
        "threads": of.choice([64, 128, 128, 256]),
        "stages": of.randrange(4),
        "dtype": of.choice(["float16", "bfloat16"]),
        "form": of.choice(["plain", "paged", "lengths", "masked"]),
    }
    if values["form"] == "paged":
        values["bN"] = min(values["bN"], values["page"])
    room = 2 * values["D"] * (values["bH"] + 2 * values["bN"] * max(values["stages"], 1))
    return values, room, values["bH"] * (values["D"] + values["bN"])


@tilec.jit(out_idx=[-1])
def kernel(B, H, G, S, D, page, bH, bN, splits, threads, stages, dtype, form):
    """By ``form`` keys lie in pages, sequences have lengths, or a mask has a byte for each key."""
    scale, shared, paged = D**-0.5 * LOG2_E, H // G, form == "paged"
    each = S // splits

    @T.prim_func
    def main(
        Q: T.Tensor((B, H, D), dtype),
        K: T.Tensor((B * S, shared, D) if paged else (B, S, shared, D), dtype),
        V: T.Tensor((B * S, shared, D) if paged else (B, S, shared, D), dtype),
        pages: T.Tensor((B, S // page), "int32"),
        lengths: T.Tensor((B,), "int32"),
        mask: T.Tensor((B, S), "uint8"),
        out: T.Tensor((B, H, D), dtype),
    ):
        parts = T.alloc_global((B, H, splits, D), "float32")
        sums = T.alloc_global((B, H, splits), "float32")
        with T.Kernel(B, shared, splits, threads=threads) as (b, h, z):
            q = T.alloc_shared((bH, D), dtype)
            k = T.alloc_shared((bN, D), dtype)
            v = T.alloc_shared((bN, D), dtype)
            s = T.alloc_fragment((bH, bN), "float32")
            p = T.alloc_fragment((bH, bN), dtype)
            o = T.alloc_fragment((bH, D), "float32")
            m, old, alpha, total, part = (T.alloc_fragment((bH,), "float32") for _ in range(5))
            for i, j in T.Parallel(bH, D):
                q[i, j] = T.if_then_else(i < G, Q[b, h * G + i, j], 0)
            T.fill(m, -1e30)
            T.clear(total)
            T.clear(o)
            length = lengths[b] if form == "lengths" else S
            for n in T.Pipelined(T.ceildiv(T.max(T.min(length - z * each, each), 0), bN), num_stages=stages):
                at = z * each + n * bN
                if paged:
                    row = pages[b, at // page] * page + at % page
                    T.copy(K[row : row + bN, h, :], k)
                    T.copy(V[row : row + bN, h, :], v)
                else:
                    T.copy(K[b, at : at + bN, h, :], k)
                    T.copy(V[b, at : at + bN, h, :], v)
                T.clear(s)
                T.gemm(q, k, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                if form == "masked":
                    for i, j in T.Parallel(bH, bN):
                        s[i, j] = T.if_then_else(mask[b, at + j] != 0, s[i, j], -T.infinity("float32"))
                if form == "lengths":
                    for i, j in T.Parallel(bH, bN):
                        s[i, j] = T.if_then_else(at + j < length, s[i, j], -T.infinity("float32"))
                T.copy(m, old)
                T.reduce_max(s, m, dim=1, clear=False)
                for i in T.Parallel(bH):
                    alpha[i] = T.exp2((old[i] - m[i]) * scale)
                for i, j in T.Parallel(bH, bN):
                    s[i, j] = T.exp2((s[i, j] - m[i]) * scale)
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(bH):
                    total[i] = total[i] * alpha[i] + part[i]
                for i, j in T.Parallel(bH, D):
                    o[i, j] *= alpha[i]
                T.copy(s, p)
                T.gemm(p, v, o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(bH, D):
                if i < G:
                    parts[b, h * G + i, z, j] = o[i, j] / T.max(total[i], 1e-30)
            for i in T.Parallel(bH):
                if i < G:
                    sums[b, h * G + i, z] = T.log2(total[i]) + m[i] * scale
        with T.Kernel(H, B, threads=128) as (h, b):
            o = T.alloc_fragment((D,), "float32")
            top = T.alloc_var("float32")
            total = T.alloc_var("float32")
            top = -T.infinity("float32")
            total = 0.0
            T.clear(o)
            for z in range(splits):
                top = T.max(top, sums[b, h, z])
            for z in range(splits):
                total += T.exp2(sums[b, h, z] - top)
                for j in T.Parallel(D):
                    o[j] += parts[b, h, z, j] * T.exp2(sums[b, h, z] - top)
            for j in T.Parallel(D):
                out[b, h, j] = o[j] / total

    return main


def work(values: dict[str, Any]) -> Work:
    """Random numbers, and what torch makes of them."""
    batch, heads, groups, length, page = (values[name] for name in ("B", "H", "G", "S", "page"))
    dtype, form, width = getattr(torch, values["dtype"]), values["form"], values["D"]
    q = normal(batch, heads, width, dtype=dtype, scale=1)
    k, v = (normal(batch, length, heads // groups, width, dtype=dtype, scale=1) for _ in range(2))
    pages = torch.randperm(batch * length // page).int().reshape(batch, -1)
    lengths = torch.randint(1, length + 1, (batch,)).int()
    mask = (torch.rand(batch, length) < 0.7).to(torch.uint8)
    seen = torch.ones(batch, length, dtype=torch.bool)
    if form == "lengths":
        seen = torch.arange(length) < lengths[:, None]
    if form == "masked":
        seen = mask != 0
    passed = [k, v]
    if form == "paged":
        passed = [torch.empty_like(each).reshape(-1, page, heads // groups, width) for each in (k, v)]
        for to, each in zip(passed, (k, v), strict=True):
            to[pages.long().reshape(-1)] = each.reshape(to.shape)
        passed = [each.reshape(-1, heads // groups, width) for each in passed]

    def peer(*tensors: torch.Tensor) -> torch.Tensor:
        first, *others = tensors
        turned = [each.transpose(1, 2) for each in others]
        return torch.nn.functional.scaled_dot_product_attention(
            first[:, :, None], *turned, attn_mask=seen[:, None, None], enable_gqa=groups > 1
        )[:, :, 0]

    wanted = peer(*(each.float() for each in (q, k, v)))
    return Work((q, *passed, pages, lengths, mask), (wanted,), lambda: peer(q, k, v))


FAMILY = Family(draw, kernel, work)
