"""Decode attention over a paged cache: beside cuDNN and flash attention on a contiguous cache with the same
keys and values, and beside reading the cache once."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from rows.ceiling import read_pair
from rows.row import Row, random

_PAGE, _GROUP, _KEY_HEADS, _SIZE = 16, 8, 8, 128
_SHAPES = ((32, 8192), (8, 8192), (1, 131072))  # sequences, tokens of each


def rows() -> list[Row]:
    """64 query heads, 8 key heads of 128, pages of 16 tokens in random order."""
    return [_decode(name, *shape) for name in ("float16", "bfloat16") for shape in _SHAPES]


def _decode(name: str, batch: int, tokens: int) -> Row:
    dtype = getattr(torch, name)
    longest = tokens // _PAGE
    pages = batch * longest

    def make() -> dict[str, torch.Tensor]:
        caches = {key: random((pages, _PAGE, _KEY_HEADS, _SIZE), dtype) for key in ("K", "V")}
        table = torch.randperm(pages, device="cuda").int().view(batch, longest)
        heads = {key: random((batch, _KEY_HEADS, _GROUP, _SIZE), dtype) for key in ("Q", "O")}
        lengths = torch.full((batch,), tokens, dtype=torch.int32, device="cuda")
        whole = {f"{key}_whole": _in_order(cache, table) for key, cache in caches.items()}
        return {**heads, **caches, "table": table, "lengths": lengths, **whole}

    peers = {
        "cuDNN": _on_contiguous(SDPBackend.CUDNN_ATTENTION),
        "flash": _on_contiguous(SDPBackend.FLASH_ATTENTION),
        "read only": lambda K, V, **_: read_pair(K, V),
    }
    dims = {"B": batch, "tokens": tokens}
    cache = 2.0 * pages * _PAGE * _KEY_HEADS * _SIZE * dtype.itemsize
    flops = 4.0 * batch * tokens * _KEY_HEADS * _GROUP * _SIZE
    kernel = f"decode_paged_{name}"
    return Row(kernel, dims, make, ("O",), peers, flops, cache, reference=_reference)


def _in_order(cache: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """The pages of a table one after the other: [batch, heads, tokens, head size]."""
    return torch.stack([cache[row.long()].flatten(0, 1) for row in table]).transpose(1, 2).contiguous()


def _on_contiguous(backend: SDPBackend) -> Callable[..., torch.Tensor]:
    def run(Q: torch.Tensor, K_whole: torch.Tensor, V_whole: torch.Tensor, **_: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(backend):
            one = Q.flatten(1, 2).unsqueeze(2)
            return F.scaled_dot_product_attention(one, K_whole, V_whole, enable_gqa=True).view_as(Q)

    return run


def _reference(
    Q: torch.Tensor, K_whole: torch.Tensor, V_whole: torch.Tensor, **_: torch.Tensor
) -> torch.Tensor:
    """In float32, one sequence after the other."""
    found = [  # a batch of key heads, the group's query heads being the queries
        F.scaled_dot_product_attention(q.float(), k.float(), v.float())
        for q, k, v in zip(Q, K_whole, V_whole, strict=True)
    ]
    return torch.stack(found)
