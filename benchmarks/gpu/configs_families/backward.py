"""Attention's gradients: one launch for D, one for dK, dV and, by atomics, dQ."""

from random import Random
from typing import Any

import torch
from configs_families.family import LOG2_E, Drawn, Family, Work, normal

import tilec
import tilec.language as T


def draw(of: Random) -> Drawn:
    """Tiles, threads, stages and forms."""
    values = {
        "B": 2,
        "S": of.choice([512, 1024]),
        "H": 8,
        "G": of.choice([1, 2]),
        "D": of.choice([32, 64, 64, 96, 128]),
        "bM": of.choice([16, 32, 64, 64, 128]),
        "bN": of.choice([16, 32, 64, 64, 128]),
        "threads": of.choice([64, 128, 128, 256, 256]),
        "stages": of.choice([0, 1, 2, 2]),
        "causal": of.random() < 0.5,
        "dtype": of.choice(["float16", "bfloat16"]),
        "form": of.choice(["turned", "plain"]),
    }
    tiles = 2 * values["bN"] + 2 * values["bM"] * max(values["stages"], 1)
    room = 2 * (tiles * values["D"] + 2 * values["bM"] * values["bN"])
    return values, room, 2 * values["bN"] * values["D"] + values["bM"] * (2 * values["bN"] + values["D"])


@tilec.jit(out_idx=[-3, -2, -1])
def kernel(B, S, H, G, D, bM, bN, threads, stages, causal, dtype, form):
    """Weights and their gradients are made as (keys, queries), or as (queries, keys)."""
    scale, turned = D**-0.5, form == "turned"
    tile = (bN, bM) if turned else (bM, bN)

    @T.prim_func
    def main(
        Q: T.Tensor((B, S, H, D), dtype),
        K: T.Tensor((B, S, H // G, D), dtype),
        V: T.Tensor((B, S, H // G, D), dtype),
        Out: T.Tensor((B, S, H, D), dtype),
        dO: T.Tensor((B, S, H, D), dtype),
        sums: T.Tensor((B, H, S), "float32"),
        delta: T.Tensor((B, H, S), "float32"),
        dQ: T.Tensor((B, S, H, D), "float32"),
        dK: T.Tensor((B, S, H, D), dtype),
        dV: T.Tensor((B, S, H, D), dtype),
    ):
        with T.Kernel(T.ceildiv(S, bM), H, B, threads=threads) as (bx, h, b):
            o = T.alloc_fragment((bM, D), "float32")
            g = T.alloc_fragment((bM, D), "float32")
            d = T.alloc_fragment((bM,), "float32")
            T.copy(Out[b, bx * bM : (bx + 1) * bM, h, :], o)
            T.copy(dO[b, bx * bM : (bx + 1) * bM, h, :], g)
            for i, j in T.Parallel(bM, D):
                o[i, j] *= g[i, j]
            T.reduce_sum(o, d, dim=1)
            T.copy(d, delta[b, h, bx * bM : (bx + 1) * bM])
            for i, j in T.Parallel(bM, D):
                dQ[b, bx * bM + i, h, j] = 0
        with T.Kernel(T.ceildiv(S, bN), H, B, threads=threads) as (bx, h, b):
            k = T.alloc_shared((bN, D), dtype)
            v = T.alloc_shared((bN, D), dtype)
            q = T.alloc_shared((bM, D), dtype)
            g = T.alloc_shared((bM, D), dtype)
            s = T.alloc_fragment(tile, "float32")
            ds = T.alloc_fragment(tile, "float32")
            p = T.alloc_shared(tile, dtype) if not turned else T.alloc_fragment(tile, dtype)
            low = T.alloc_shared(tile, dtype)
            lse = T.alloc_shared((bM,), "float32")
            dd = T.alloc_shared((bM,), "float32")
            dk = T.alloc_fragment((bN, D), "float32")
            dv = T.alloc_fragment((bN, D), "float32")
            dq = T.alloc_fragment((bM, D), "float32")
            T.copy(K[b, bx * bN : (bx + 1) * bN, h // G, :], k)
            T.copy(V[b, bx * bN : (bx + 1) * bN, h // G, :], v)
            T.clear(dk)
            T.clear(dv)
            first = bx * bN // bM if causal else 0
            for n in T.Pipelined(first, T.ceildiv(S, bM), num_stages=stages):
                T.copy(Q[b, n * bM : (n + 1) * bM, h, :], q)
                T.copy(sums[b, h, n * bM : (n + 1) * bM], lse)
                T.clear(s)
                if turned:
                    T.gemm(k, q, s, transpose_B=True)
                else:
                    T.gemm(q, k, s, transpose_B=True)
                for x, y in T.Parallel(*tile):
                    s[x, y] = T.exp2(s[x, y] * (scale * LOG2_E) - lse[y if turned else x])
                if causal:
                    for x, y in T.Parallel(*tile):
                        s[x, y] = T.if_then_else(
                            n * bM + (y if turned else x) >= bx * bN + (x if turned else y), s[x, y], 0.0
                        )
                T.copy(dO[b, n * bM : (n + 1) * bM, h, :], g)
                T.copy(delta[b, h, n * bM : (n + 1) * bM], dd)
                T.clear(ds)
                if turned:
                    T.gemm(v, g, ds, transpose_B=True)
                else:
                    T.gemm(g, v, ds, transpose_B=True)
                T.copy(s, p)
                T.gemm(p, g, dv, transpose_A=not turned)
                for x, y in T.Parallel(*tile):
                    ds[x, y] = s[x, y] * (ds[x, y] - dd[y if turned else x]) * scale
                T.copy(ds, low)
                T.gemm(low, q, dk, transpose_A=not turned)
                T.clear(dq)
                T.gemm(low, k, dq, transpose_A=turned)
                for i, j in T.Parallel(bM, D):
                    T.atomic_add(dQ[b, n * bM + i, h, j], dq[i, j])
            T.copy(dk, dK[b, bx * bN : (bx + 1) * bN, h, :])
            T.copy(dv, dV[b, bx * bN : (bx + 1) * bN, h, :])

    return main


def work(values: dict[str, Any]) -> Work:
    """Random numbers, and what torch makes of them."""
    batch, length, heads, groups = (values[name] for name in ("B", "S", "H", "G"))
    dtype, width = getattr(torch, values["dtype"]), values["D"]
    q, grad = (normal(batch, length, heads, width, dtype=dtype, scale=1) for _ in range(2))
    k, v = (normal(batch, length, heads // groups, width, dtype=dtype, scale=1) for _ in range(2))
    mask = torch.ones(length, length).tril() if values["causal"] else torch.ones(length, length)
    wide = [each.float().transpose(1, 2) for each in (q, k, v, grad)]
    wide[1:3] = [each.repeat_interleave(groups, 1) for each in wide[1:3]]
    logits = (wide[0] @ wide[1].transpose(2, 3) * width**-0.5).masked_fill(mask == 0, -torch.inf)
    sums = logits.logsumexp(-1) * LOG2_E
    leaves = [each.clone().requires_grad_() for each in wide[:3]]
    out = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=values["causal"])
    out.backward(wide[3])
    wanted = tuple(each.grad.transpose(1, 2) for each in leaves)
    o = out.detach().transpose(1, 2).to(dtype)
    leaves = [each.detach().to(dtype).requires_grad_() for each in wide[:3]]
    out = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=values["causal"])

    def peer() -> Any:
        return torch.autograd.grad(out, leaves, grad.transpose(1, 2), retain_graph=True)

    return Work((q, k, v, o, grad, sums, torch.empty_like(sums)), wanted, peer)


FAMILY = Family(draw, kernel, work, lambda values: False)
