"""Dense matrix products beside cuBLAS."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from rows.row import Peer, Row, random

Shapes = tuple[tuple[int, int, int], ...]
_TABLE: Shapes = (
    *((size, size, size) for size in (1024, 4096, 5000, 8192)),
    *((2048, 4096, 14336), (128, 4096, 4096), (16, 14336, 4096), (1000, 1000, 1000)),
)
#: The same kernel with other schedules: without the early start that the tuned one has up to 1024 rows, and
#: as it is, with no schedule for the shape.
_LATE, _UNTUNED = "late", "untuned"
_EARLY_ROWS = 1024
#: Of no table that schedules were made for.
_HELD_OUT = (
    *((3072, 6144, 2048), (777, 1000, 1288), (96, 6144, 6144), (1024, 1024, 1024), (1, 32000, 4096)),
    *((16384, 1536, 768), (4096, 11008, 4096), (4096, 4096, 4096), (8192, 8192, 8192)),
)
#: Extents that are multiples of nothing.
_RAGGED = ((333, 4097, 2049), (1001, 999, 1003), (4095, 4097, 4093))
_SQUARES_8 = (4096, 8192)
_NARROW = {True: "linear_fp8_fast", False: "linear_fp8_promoted"}
_LARGE = 2.0e10  # operations from which the power limit is felt


def rows() -> list[Row]:
    """Both 16-bit types: weights as (N, K), as frameworks store them, and as (K, N), each with the schedules
    of the folder's manifest, without an early start, and without schedules; then e4m3."""
    wide = [
        product(dtype, transposed, shape, schedule)
        for transposed, ragged in ((True, ()), (False, _RAGGED))
        for dtype in ("float16", "bfloat16")
        for schedule, shapes in _shapes_by_schedule(ragged).items()
        for shape in shapes
    ]
    return [
        *wide,
        *(narrow(_NARROW[fast], (size,) * 3, fast) for fast in (True, False) for size in _SQUARES_8),
    ]


def shipped() -> list[Row]:
    """What a user builds: the products of manifests/llm.toml on held-out shapes, B as (K, N)."""
    return [
        product(dtype, False, shape, library="shipped")
        for dtype in ("float16", "bfloat16")
        for shape in _HELD_OUT
    ]


def _shapes_by_schedule(ragged: Shapes) -> dict[str, Shapes]:
    early = tuple(shape for shape in _TABLE if shape[0] <= _EARLY_ROWS)
    return {"": (*_TABLE, *ragged), _LATE: early, _UNTUNED: _TABLE}


def product(
    name: str, transposed: bool, shape: tuple[int, int, int], schedule: str = "", library: str = ""
) -> Row:
    """Two matrices of 16 bits; ``transposed``: B is stored (N, K); ``schedule``: one of the bundle's."""
    dtype, (m, n, k) = getattr(torch, name), shape

    def make() -> dict[str, Any]:
        stored = (n, k) if transposed else (k, n)
        return {"A": random((m, k), dtype), "B": random(stored, dtype), "C": random((m, n), dtype)}

    def cublas(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> torch.Tensor:
        return torch.matmul(A, B.t() if transposed else B, out=C)

    kernel = f"matmul_nt_{name}" if transposed else f"matmul_nn_{name}"
    if library or shape in _RAGGED:
        kernel = f"matmul_{name}"
    elif schedule:
        kernel = kernel.replace("_nt_", f"_nt_{schedule}_").replace("_nn_", f"_nn_{schedule}_")
    row = _row(kernel, shape, make, {"cuBLAS": cublas}, dtype.itemsize, 2)
    return replace(row, library=library)


def narrow(kernel: str, shape: tuple[int, int, int], fast: bool) -> Row:
    """e4m3 with one scale: sums that stay in the tensor core, or leave it every 128 of K, as cuBLAS's do."""
    m, n, k = shape

    def make() -> dict[str, Any]:
        operands = {
            key: random((rows, k), torch.float16).to(torch.float8_e4m3fn)
            for key, rows in (("A", m), ("W", n))
        }
        scales = {"half": torch.full((1,), 0.5, device="cuda"), "one": torch.ones((1,), device="cuda")}
        return {**operands, **scales, "scale": 0.5, "C": random((m, n), torch.bfloat16)}

    def scaled_mm(A: torch.Tensor, W: torch.Tensor, C: torch.Tensor, **more: Any) -> torch.Tensor:
        scales = {"scale_a": more["half"], "scale_b": more["one"]}
        return torch._scaled_mm(A, W.t(), **scales, out_dtype=torch.bfloat16, use_fast_accum=fast, out=C)

    def reference(A: torch.Tensor, W: torch.Tensor, **_: Any) -> torch.Tensor:
        return A.float() @ W.float().t() * 0.5

    return _row(kernel, shape, make, {"_scaled_mm": scaled_mm}, 1, 2, reference)


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
