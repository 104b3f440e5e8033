"""A product and the activation behind it in one launch, beside torch."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from rows.row import Row, random

_SHAPES = ((8192, 3072, 768), (4096, 4096, 4096))


def rows() -> list[Row]:
    """GELU: torch in two launches, as torch.compile has it, and cuBLAS's own, which takes tanh for erf."""
    return [_gelu("bfloat16", *shape) for shape in _SHAPES]


def _gelu(name: str, m: int, n: int, k: int) -> Row:
    dtype = getattr(torch, name)

    def make() -> dict[str, torch.Tensor]:
        made = {"A": random((m, k), dtype), "W": random((n, k), dtype) * k**-0.5}
        return {**made, "bias": random((n,), dtype), "C": random((m, n), dtype)}

    def eager(A: torch.Tensor, W: torch.Tensor, bias: torch.Tensor, **_: Any) -> torch.Tensor:
        return F.gelu(torch.addmm(bias, A, W.t()))

    def approximate(A: torch.Tensor, W: torch.Tensor, bias: torch.Tensor, **_: Any) -> torch.Tensor:
        return torch._addmm_activation(bias, A, W.t(), use_gelu=True)

    compiled = torch.compile(eager, dynamic=False)
    peers = {"torch": eager, "torch.compile": compiled, "cuBLAS, tanh": approximate}
    dims = {"M": m, "N": n, "K": k}
    return Row(
        f"linear_gelu_{name}", dims, make, ("C",), peers, 2.0 * m * n * k, 2.0 * (m * k + n * k + m * n)
    )
