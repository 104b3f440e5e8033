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


def gated(name: str, m: int, n: int, k: int) -> Row:
    """silu(A @ G.T) * (A @ U.T), beside one product by both weights and what joins its halves."""
    dtype = getattr(torch, name)

    def make() -> dict[str, torch.Tensor]:
        both = random((2 * n, k), dtype) * k**-0.5
        made = {"A": random((m, k), dtype), "G": both[:n], "U": both[n:], "C": random((m, n), dtype)}
        return {**made, "both": both, "halves": random((m, 2 * n), dtype)}

    def joined(
        A: torch.Tensor, both: torch.Tensor, halves: torch.Tensor, C: torch.Tensor, **_: Any
    ) -> torch.Tensor:
        torch.mm(A, both.t(), out=halves)
        return torch.mul(F.silu(halves[:, :n]), halves[:, n:], out=C)

    def product(A: torch.Tensor, both: torch.Tensor, halves: torch.Tensor, **_: Any) -> torch.Tensor:
        return torch.mm(A, both.t(), out=halves)

    def exact(A: torch.Tensor, G: torch.Tensor, U: torch.Tensor, **_: Any) -> torch.Tensor:
        a = A.float()
        return F.silu(a @ G.float().t()) * (a @ U.float().t())

    peers: dict[str, Peer] = {"cuBLAS, then torch": joined, "cuBLAS, the product alone": product}
    dims = {"M": m, "N": n, "K": k}
    work, size = 4.0 * m * n * k, 2.0 * (m * k + 2 * n * k + m * n)
    return Row(f"linear_silu_mul_{name}", dims, make, ("C",), peers, work, size, reference=exact)


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
