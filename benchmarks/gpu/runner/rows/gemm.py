"""Dense matrix products beside cuBLAS."""

from __future__ import annotations

from typing import Any

import torch

from rows.row import Peer, Row, random

_TABLE = (
    *((size, size, size) for size in (1024, 4096, 5000, 8192)),
    *((2048, 4096, 14336), (128, 4096, 4096), (16, 14336, 4096), (1000, 1000, 1000)),
)
#: Extents that are multiples of nothing.
_RAGGED = ((333, 4097, 2049), (1001, 999, 1003), (4095, 4097, 4093))
_SQUARES_8 = (4096, 8192)
_LARGE = 2.0e10  # operations from which the power limit is felt


def rows() -> list[Row]:
    """Both 16-bit types: weights as (N, K), as frameworks store them, and as (K, N); then e4m3."""
    wide = [
        _product(dtype, transposed, *shape)
        for transposed, shapes in ((True, _TABLE), (False, (*_TABLE, *_RAGGED)))
        for dtype in ("float16", "bfloat16")
        for shape in shapes
    ]
    return [*wide, *(_narrow(fast, size) for fast in (True, False) for size in _SQUARES_8)]


def _product(name: str, transposed: bool, m: int, n: int, k: int) -> Row:
    dtype = getattr(torch, name)

    def make() -> dict[str, Any]:
        stored = (n, k) if transposed else (k, n)
        return {"A": random((m, k), dtype), "B": random(stored, dtype), "C": random((m, n), dtype)}

    def cublas(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> torch.Tensor:
        return torch.matmul(A, B.t() if transposed else B, out=C)

    kernel = f"matmul_nt_{name}" if transposed else f"matmul_nn_{name}"
    if (m, n, k) in _RAGGED:
        kernel = f"matmul_{name}"
    return _row(kernel, (m, n, k), make, {"cuBLAS": cublas}, dtype.itemsize, 2)


def _narrow(fast: bool, size: int) -> Row:
    """e4m3 with one scale: sums that stay in the tensor core, or leave it every 128 of K, as cuBLAS's do."""

    def make() -> dict[str, Any]:
        operands = {key: random((size, size), torch.float16).to(torch.float8_e4m3fn) for key in "AW"}
        return {**operands, "scale": 0.5, "C": random((size, size), torch.bfloat16)}

    half, one = (torch.full((1,), value, device="cuda") for value in (0.5, 1.0))

    def scaled_mm(A: torch.Tensor, W: torch.Tensor, C: torch.Tensor, **_: Any) -> torch.Tensor:
        return torch._scaled_mm(
            A, W.t(), scale_a=half, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast, out=C
        )

    def reference(A: torch.Tensor, W: torch.Tensor, **_: Any) -> torch.Tensor:
        return A.float() @ W.float().t() * 0.5

    kernel = "linear_fp8_fast" if fast else "linear_fp8_promoted"
    return _row(kernel, (size, size, size), make, {"_scaled_mm": scaled_mm}, 1, 2, reference)


def _row(
    kernel: str,
    shape: tuple[int, int, int],
    make: Any,
    peers: dict[str, Peer],
    size: int,
    out_size: int,
    reference: Peer | None = None,
) -> Row:
    """``size`` and ``out_size``: bytes of an element of the operands and of the result."""
    m, n, k = shape
    flops = 2.0 * m * n * k
    moved = float(size * (m * k + k * n) + out_size * m * n)
    return Row(
        kernel,
        {"M": m, "N": n, "K": k},
        make,
        ("C",),
        peers,
        flops,
        moved,
        reference=reference,
        sustained=flops > _LARGE,
    )
