"""Attention of packed sequences, and of key blocks that a mask tells."""

from random import Random
from typing import Any

import torch
from configs_families.family import LOG2_E, Drawn, Family, Work, normal

import tilec
import tilec.language as T


def draw(of: Random) -> Drawn:
    """Tiles, threads, stages and forms."""
    values = {
        "B": 3,
        "S": of.choice([256, 500]),
        "H": 8,
        "G": of.choice([1, 4]),
        "D": of.choice([32, 64, 64, 96, 128]),
        "bM": of.choice([16, 32, 64, 64, 128]),
        "bN": of.choice([16, 32, 64, 64, 128]),
        "threads": of.choice([64, 128, 128, 256, 256]),
        "stages": of.randrange(4),
        "causal": of.random() < 0.5,
        "dtype": of.choice(["float16", "bfloat16"]),
        "form": of.choice(["lengths", "blocks", "listed"]),
    }
    room = 2 * values["D"] * (values["bM"] + 2 * values["bN"] * max(values["stages"], 1))
    return values, room, values["bM"] * (values["D"] + values["bN"])


@tilec.jit(out_idx=[-1])
def kernel(B, S, H, G, D, bM, bN, threads, stages, causal, dtype, form):
    """Keys are the whole sequence, blocks that a mask of bytes has, or those of a list with their number."""
    rows = T.dynamic("rows")
    scale, tiles, blocks = D**-0.5 * LOG2_E, -(-S // bM), -(-S // bN)

    @T.prim_func
    def main(
        Q: T.Tensor((rows, H, D), dtype),
        K: T.Tensor((rows, H // G, D), dtype),
        V: T.Tensor((rows, H // G, D), dtype),
        starts: T.Tensor((B + 1,), "int32"),
        mask: T.Tensor((B, tiles, blocks), "int8"),
        lists: T.Tensor((B, tiles, blocks), "int32"),
        counts: T.Tensor((B, tiles), "int32"),
        out: T.Tensor((rows, H, D), dtype),
    ):
        with T.Kernel(tiles, H, B, threads=threads) as (bx, h, b):
            q = T.alloc_shared((bM, D), dtype)
            k = T.alloc_shared((bN, D), dtype)
            v = T.alloc_shared((bN, D), dtype)
            s = T.alloc_fragment((bM, bN), "float32")
            p = T.alloc_fragment((bM, bN), dtype)
            o = T.alloc_fragment((bM, D), "float32")
            m, old, alpha, total, part = (T.alloc_fragment((bM,), "float32") for _ in range(5))
            start, end = starts[b], starts[b + 1]
            length = end - start
            for i, j in T.Parallel(bM, D):
                q[i, j] = T.if_then_else(bx * bM + i < length, Q[start + bx * bM + i, h, j], 0)
            T.fill(m, -1e30)
            T.clear(total)
            T.clear(o)
            most = T.min(length, (bx + 1) * bM) if causal else length
            trips = counts[b, bx] if form == "listed" else T.ceildiv(most, bN)
            for n in T.Pipelined(trips, num_stages=stages):
                block = lists[b, bx, n] if form == "listed" else n
                if form != "blocks" or mask[b, bx, n] != 0:
                    at = start + block * bN
                    for i, j in T.Parallel(bN, D):
                        k[i, j] = T.if_then_else(block * bN + i < length, K[at + i, h // G, j], 0)
                    for i, j in T.Parallel(bN, D):
                        v[i, j] = T.if_then_else(block * bN + i < length, V[at + i, h // G, j], 0)
                    T.clear(s)
                    T.gemm(q, k, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                    for i, j in T.Parallel(bM, bN):
                        seen = block * bN + j < length
                        if causal:
                            seen = seen & (bx * bM + i >= block * bN + j)
                        s[i, j] = T.if_then_else(seen, s[i, j], -T.infinity("float32"))
                    T.copy(m, old)
                    T.reduce_max(s, m, dim=1, clear=False)
                    for i in T.Parallel(bM):
                        alpha[i] = T.exp2((old[i] - m[i]) * scale)
                    for i, j in T.Parallel(bM, bN):
                        s[i, j] = T.exp2((s[i, j] - m[i]) * scale)
                    T.reduce_sum(s, part, dim=1)
                    for i in T.Parallel(bM):
                        total[i] = total[i] * alpha[i] + part[i]
                    for i, j in T.Parallel(bM, D):
                        o[i, j] *= alpha[i]
                    T.copy(s, p)
                    T.gemm(p, v, o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(bM, D):
                if bx * bM + i < length:
                    out[start + bx * bM + i, h, j] = o[i, j] / T.max(total[i], 1e-30)

    return main


def work(values: dict[str, Any]) -> Work:
    """Random numbers, and what torch makes of them."""
    batch, longest, heads, groups, width = (values[name] for name in ("B", "S", "H", "G", "D"))
    high, wide = values["bM"], values["bN"]
    lengths = torch.randint(1, longest + 1, (batch,))
    lengths[0] = longest
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    rows, dtype = int(starts[-1]), getattr(torch, values["dtype"])
    q = normal(rows, heads, width, dtype=dtype, scale=1)
    k, v = (normal(rows, heads // groups, width, dtype=dtype, scale=1) for _ in range(2))
    tiles, blocks = -(-longest // high), -(-longest // wide)
    mask = torch.rand(batch, tiles, blocks) < 0.6
    mask[:, :, 0] = True
    if values["form"] == "lengths":
        mask[:] = True
    inside = torch.arange(blocks) * wide < lengths[:, None]
    if values["causal"]:
        inside = inside[:, None] & (torch.arange(blocks) * wide < (torch.arange(tiles) + 1)[:, None] * high)
    else:
        inside = inside[:, None]
    listed = mask & inside
    counts = listed.sum(-1).int()
    lists = torch.argsort((~listed).int(), dim=-1, stable=True).int()
    pieces = []
    for b in range(batch):
        length, part = int(lengths[b]), slice(int(starts[b]), int(starts[b + 1]))
        seen = mask[b].repeat_interleave(high, 0).repeat_interleave(wide, 1)[:length, :length]
        if values["causal"]:
            seen = seen & torch.ones(length, length, dtype=torch.bool).tril()
        first, second, third = (
            each[part].float().transpose(0, 1).repeat_interleave(count, 0)
            for each, count in ((q, 1), (k, groups), (v, groups))
        )
        logits = (first @ second.transpose(1, 2) * width**-0.5).masked_fill(~seen, -torch.inf)
        pieces.append((logits.softmax(-1) @ third).transpose(0, 1))
    whole = [each[: int(starts[1])].transpose(0, 1)[None] for each in (q, k, v)]

    def peer() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(*whole, enable_gqa=groups > 1)

    inputs = (q, k, v, starts.int(), mask.to(torch.int8), lists, counts)
    return Work(inputs, (torch.cat(pieces),), peer)


FAMILY = Family(draw, kernel, work)
