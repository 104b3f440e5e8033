"""Attention over ragged batches beside FlashAttention 3, which has grouped heads of its own, and torch's
flash attention of variable length, which gets keys and values for every query head."""

from __future__ import annotations

import inspect

import torch

from rows import flash3
from rows.row import Row, random

_HEADS, _KEY_HEADS = 32, 8
_LENGTHS = (8192, 5000, 4096, 4096, 3001, 2048, 1500, 1024, 1000, 700, 512, 511, 300, 128, 65, 1)
_SIZES = {"": (64, 128), "_causal": (64, 128)}


def rows() -> list[Row]:
    """Sixteen sequences of 1 to 8192 tokens, each attending to itself; four query heads share a key head."""
    return [
        _ragged(dtype, kind, size, size)
        for dtype in ("float16", "bfloat16")
        for kind, sizes in _SIZES.items()
        for size in sizes
    ] + [_ragged(dtype, "_wide_keys", 192, 128) for dtype in ("float16", "bfloat16")]


def _ragged(name: str, kind: str, size: int, width: int) -> Row:
    dtype, tokens = getattr(torch, name), sum(_LENGTHS)
    causal = kind != ""

    def make() -> dict[str, torch.Tensor | int]:
        bounds = torch.tensor((0, *_LENGTHS), device="cuda").cumsum(0).int()
        tensors = {
            "Q": random((tokens, _HEADS, size), dtype),
            "K": random((tokens, _KEY_HEADS, size), dtype),
            "V": random((tokens, _KEY_HEADS, width), dtype),
            "O": random((tokens, _HEADS, width), dtype),
            "L": random((_HEADS, tokens), torch.float32),
        }
        shared = _HEADS // _KEY_HEADS
        wide = {f"{key}_heads": tensors[key].repeat_interleave(shared, 1) for key in ("K", "V")}
        return {**tensors, **wide, "q_bounds": bounds, "k_bounds": bounds, "longest": max(_LENGTHS)}

    def flash(
        Q: torch.Tensor,
        K_heads: torch.Tensor,
        V_heads: torch.Tensor,
        q_bounds: torch.Tensor,
        longest: int,
        **_: object,
    ) -> torch.Tensor:
        from torch.nn.attention.varlen import varlen_attn

        window = {"window_size": (-1, 0) if causal else (-1, -1)}
        how = window if "window_size" in inspect.signature(varlen_attn).parameters else {"is_causal": causal}
        return varlen_attn(Q, K_heads, V_heads, q_bounds, q_bounds, longest, longest, **how)

    def reference(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, **_: object) -> tuple[torch.Tensor, ...]:
        found = [
            _attend(*parts, causal) for parts in zip(*(x.split(_LENGTHS) for x in (Q, K, V)), strict=True)
        ]
        return torch.cat([out for out, _ in found]), torch.cat([logs for _, logs in found], dim=1)

    squares = float(sum(length * length for length in _LENGTHS))
    flops = 2.0 * squares * _HEADS * (size + width) * (0.5 if causal else 1.0)
    moved = dtype.itemsize * tokens * (_HEADS + _KEY_HEADS) * (size + width)
    dims = {"tokens": tokens, "B": len(_LENGTHS), "H": _HEADS, "Hkv": _KEY_HEADS, "D": size}
    return Row(
        f"attention_varlen{kind}_{name}",
        dims,
        make,
        ("O", "L"),
        {"FlashAttention 3": flash3.ragged(causal), "flash, repeated keys": flash},
        flops,
        moved,
        reference=reference,
    )


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """One sequence in float32, head by head, and the log of the sums."""
    length, heads, size = q.shape
    hidden = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1) if causal else None
    outs, logs = [], []
    for head in range(heads):
        shared = head * k.shape[1] // heads
        scores = q[:, head].float() @ k[:, shared].float().T * size**-0.5
        scores = scores if hidden is None else scores.masked_fill(hidden, float("-inf"))
        outs.append(torch.softmax(scores, 1) @ v[:, shared].float())
        logs.append(torch.logsumexp(scores, 1))
    return torch.stack(outs, 1), torch.stack(logs)
