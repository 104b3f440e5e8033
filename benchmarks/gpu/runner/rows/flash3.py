"""FlashAttention 3 where it is installed: the package flash_attn_3, or the copy in xformers 0.0.34."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

_HOLDERS = {"flash_attn_3": ".", "xformers": "flash_attn_3"}


@cache
def _operator() -> Any:
    """The forward operator; RuntimeError, which names the reason, where there is none."""
    for package, folder in _HOLDERS.items():
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            continue
        for file in (Path(spec.origin).parent / folder).glob("_C*.so"):
            try:
                torch.ops.load_library(str(file))
            except OSError as problem:
                raise RuntimeError(f"{file.name} of {package} does not load: {problem}") from None
            return torch.ops.flash_attn_3.fwd
    raise RuntimeError("neither flash_attn_3 nor a copy of it in xformers is installed")


def dense(causal: bool) -> Any:
    """On [batch, length, heads, head size]."""

    def run(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, **_: object) -> torch.Tensor:
        return _operator()(Q, K, V, softmax_scale=Q.shape[-1] ** -0.5, is_causal=causal)[0]

    return run


def ragged(causal: bool) -> Any:
    """On [tokens, heads, head size] of all sequences; K and V have the key heads alone."""

    def run(
        Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, q_bounds: torch.Tensor, longest: int, **_: object
    ) -> torch.Tensor:
        bounds = {"cu_seqlens_q": q_bounds, "cu_seqlens_k": q_bounds}
        sizes = {"max_seqlen_q": longest, "max_seqlen_k": longest}
        scale = Q.shape[-1] ** -0.5
        return _operator()(Q, K, V, **bounds, **sizes, softmax_scale=scale, is_causal=causal)[0]

    return run
