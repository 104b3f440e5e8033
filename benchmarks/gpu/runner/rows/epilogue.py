"""A product and what stands behind it in one launch, beside torch."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from rows.row import Peer, Row, random

_SHAPES = ((8192, 3072, 768), (4096, 4096, 4096))


def rows() -> list[Row]:
    """GELU: torch in two launches, as torch.compile has it, and cuBLAS's own, which takes tanh for erf."""
    return [_gelu("bfloat16", *shape) for shape in _SHAPES]


def linear(name: str, m: int, n: int, k: int) -> Row:
    """A bias, weights stored (N, K)."""

    def fused(A: torch.Tensor, W: torch.Tensor, bias: torch.Tensor, C: torch.Tensor) -> torch.Tensor:
        return torch.addmm(bias, A, W.t(), out=C)

    return _row(f"linear_{name}", name, (m, n, k), {"cuBLAS": fused})


def _gelu(name: str, m: int, n: int, k: int) -> Row:
    def eager(A: torch.Tensor, W: torch.Tensor, bias: torch.Tensor, **_: Any) -> torch.Tensor:
        return F.gelu(torch.addmm(bias, A, W.t()))

    def approximate(A: torch.Tensor, W: torch.Tensor, bias: torch.Tensor, **_: Any) -> torch.Tensor:
        return torch._addmm_activation(bias, A, W.t(), use_gelu=True)

    compiled = torch.compile(eager, dynamic=False)
    peers = {"torch": eager, "torch.compile": compiled, "cuBLAS, tanh": approximate}
    return _row(f"linear_gelu_{name}", name, (m, n, k), peers)


def _row(kernel: str, name: str, shape: tuple[int, int, int], peers: dict[str, Peer]) -> Row:
    dtype, (m, n, k) = getattr(torch, name), shape

    def make() -> dict[str, torch.Tensor]:
        made = {"A": random((m, k), dtype), "W": random((n, k), dtype) * k**-0.5}
        return {**made, "bias": random((n,), dtype), "C": random((m, n), dtype)}

    dims = {"M": m, "N": n, "K": k}
    return Row(kernel, dims, make, ("C",), peers, 2.0 * m * n * k, 2.0 * (m * k + n * k + m * n))
