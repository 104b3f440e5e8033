"""Dense matrix products beside cuBLAS."""

from __future__ import annotations

import torch

from rows.row import Row, random

_SQUARES = (1000, 1024, 4096, 5000, 8192)
_SHAPES = (
    *((size, size, size) for size in _SQUARES),
    *((2048, 4096, 14336), (128, 4096, 4096), (16, 14336, 4096), (333, 4097, 2049)),
)
_LARGE = 2.0e10  # operations from which the power limit is felt


def rows() -> list[Row]:
    """A[M, K] B[K, N] in both 16-bit types."""
    return [_product(dtype, *shape) for dtype in ("float16", "bfloat16") for shape in _SHAPES]


def _product(name: str, m: int, n: int, k: int) -> Row:
    dtype = getattr(torch, name)

    def make() -> dict[str, torch.Tensor]:
        return {"A": random((m, k), dtype), "B": random((k, n), dtype), "C": random((m, n), dtype)}

    def cublas(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> torch.Tensor:
        return torch.matmul(A, B, out=C)

    flops = 2.0 * m * n * k
    moved = float(dtype.itemsize * (m * k + k * n + m * n))
    dims = {"M": m, "N": n, "K": k}
    return Row(
        f"matmul_{name}", dims, make, ("C",), {"cuBLAS": cublas}, flops, moved, sustained=flops > _LARGE
    )
