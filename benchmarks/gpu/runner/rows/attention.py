"""Attention forward beside cuDNN, FlashAttention 3 and torch's flash attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from rows import flash3
from rows.row import Row, random

# batch, heads, length, head size, causal
_SHAPES = (
    (4, 32, 4096, 128, False),
    (4, 32, 4096, 128, True),
    (1, 32, 16384, 128, True),
    (8, 16, 2048, 64, True),
    (8, 16, 2048, 64, False),
)


def rows() -> list[Row]:
    """Heads of one sequence after the other, [batch, length, heads, head size], with log-sum-exp."""
    return [_usual(dtype, *shape) for dtype in ("float16", "bfloat16") for shape in _SHAPES]


def _usual(name: str, batch: int, heads: int, length: int, size: int, causal: bool) -> Row:
    dims = {"B": batch, "H": heads, "Sq": length, "Sk": length, "D": size}
    return replace(attention(name, {**dims, "Hkv": heads}, causal), dims=dims)


def attention(name: str, dims: dict[str, int], causal: bool) -> Row:
    """Of ``dims`` B, Sq, Sk, H, Hkv and D; a key's head serves H / Hkv neighbouring ones."""
    dtype = getattr(torch, name)
    batch, heads, queries, keys, size = (dims[key] for key in ("B", "H", "Sq", "Sk", "D"))
    shapes = dict.fromkeys(("Q", "O"), (batch, queries, heads, size))
    shapes |= dict.fromkeys(("K", "V"), (batch, keys, dims["Hkv"], size))

    def make() -> dict[str, torch.Tensor]:
        tensors = {key: random(shapes[key], dtype) for key in ("Q", "K", "V", "O")}
        heads_first = {f"{key}_heads": tensors[key].transpose(1, 2).contiguous() for key in ("Q", "K", "V")}
        return {**tensors, **heads_first, "L": torch.empty((batch, heads, queries), device="cuda")}

    peers = {
        "cuDNN": sdpa(SDPBackend.CUDNN_ATTENTION, causal),
        "cuDNN, heads first": _heads_first(SDPBackend.CUDNN_ATTENTION, causal),
        "FlashAttention 3": flash3.dense(causal),
        "flash": sdpa(SDPBackend.FLASH_ATTENTION, causal),
    }
    kernel = f"attention_dense_causal_{name}" if causal else f"attention_dense_{name}"
    flops = 4.0 * batch * heads * queries * keys * size * (0.5 if causal else 1.0)
    moved = 2.0 * batch * (heads * queries + dims["Hkv"] * keys) * size * dtype.itemsize
    return Row(
        kernel, dims, make, ("O", "L"), peers, flops, moved, sustained=True, reference=_with_sums(causal)
    )


def _with_sums(causal: bool) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """torch's flash attention with the logarithm of each row's sum."""

    def run(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, **_: torch.Tensor) -> tuple[torch.Tensor, ...]:
        heads_first = [each.transpose(1, 2) for each in (Q, K, V)]
        repeated = [each.repeat_interleave(Q.shape[2] // each.shape[1], 1) for each in heads_first]
        found = torch.ops.aten._scaled_dot_product_flash_attention(*repeated, 0.0, causal)
        return found[0].transpose(1, 2), found[1]

    return run


def sdpa(backend: SDPBackend, causal: bool) -> Callable[..., torch.Tensor]:
    """torch's attention by one backend, on [batch, length, heads, head size]."""

    def run(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, **_: torch.Tensor) -> torch.Tensor:
        heads_first = [each.transpose(1, 2) for each in (Q, K, V)]
        with sdpa_kernel(backend):
            shared = {"enable_gqa": True} if K.shape[2] < Q.shape[2] else {}
            return F.scaled_dot_product_attention(*heads_first, is_causal=causal, **shared).transpose(1, 2)

    return run


def _heads_first(backend: SDPBackend, causal: bool) -> Callable[..., torch.Tensor]:
    """The same on [batch, heads, length, head size], the order that torch's users have."""

    def run(
        Q_heads: torch.Tensor, K_heads: torch.Tensor, V_heads: torch.Tensor, **_: torch.Tensor
    ) -> torch.Tensor:
        with sdpa_kernel(backend):
            shared = {"enable_gqa": True} if K_heads.shape[1] < Q_heads.shape[1] else {}
            return F.scaled_dot_product_attention(Q_heads, K_heads, V_heads, is_causal=causal, **shared)

    return run
