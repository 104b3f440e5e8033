"""Elementwise work and rows, bound by device memory, beside torch."""

from __future__ import annotations

import torch

from rows.row import Row, random


def rows() -> list[Row]:
    """Both widths of each kernel."""
    names = ("float32", "float16")
    made = [_scale_add(name, 1 << 26) for name in names]
    made += [_row_kernel(kind, name, 8192, 8192) for name in names for kind in ("softmax", "rmsnorm")]
    return made


def _scale_add(name: str, n: int) -> Row:
    dtype = getattr(torch, name)

    def make() -> dict[str, torch.Tensor | float]:
        return {"a": 1.5, **{key: random((n,), dtype) for key in ("X", "B", "Y")}}

    def eager(X: torch.Tensor, B: torch.Tensor, Y: torch.Tensor, a: float) -> torch.Tensor:
        return torch.add(B, X, alpha=a, out=Y)

    moved = 3.0 * n * dtype.itemsize
    return Row(f"scale_add_{name}", {"n": n}, make, ("Y",), {"torch": eager}, 2.0 * n, moved)


def _row_kernel(kind: str, name: str, m: int, n: int) -> Row:
    dtype = getattr(torch, name)

    def make() -> dict[str, torch.Tensor]:
        tensors = {"X": random((m, n), dtype), "Y": random((m, n), dtype)}
        return tensors if kind == "softmax" else {**tensors, "G": random((n,), dtype)}

    def softmax(X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
        return torch.softmax(X, -1, out=Y)

    def rmsnorm(X: torch.Tensor, Y: torch.Tensor, G: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rms_norm(X, (n,), G, 1e-6)

    peer = softmax if kind == "softmax" else rmsnorm
    moved = 2.0 * m * n * dtype.itemsize
    return Row(f"{kind}_{name}", {"M": m, "N": n}, make, ("Y",), {"torch": peer}, 0.0, moved)
