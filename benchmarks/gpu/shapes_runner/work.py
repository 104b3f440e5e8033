"""Rows of drawn shapes: tensors, and torch beside the kernel."""

from __future__ import annotations

from dataclasses import replace

import torch
from draw import EVEN, Drawn
from rows import attention, epilogue, gemm, memory, quantised
from rows.row import Row

_DTYPES = ("float32", "bfloat16", "float16")


def row_of(drawn: Drawn) -> Row:
    """What a drawn shape asks of its kernel. Peers that are compiled for each shape are left out."""
    made = _MAKERS[drawn.family](drawn.kernel, drawn.dims)
    peers = {name: peer for name, peer in made.peers.items() if name not in ("torch.compile", "read only")}
    return replace(made, kernel=drawn.kernel, peers=peers, sustained=False)


def _product(kernel: str, dims: dict[str, int]) -> Row:
    shape = (dims["M"], dims["N"], dims["K"])
    if kernel.startswith("linear_silu_mul"):
        return epilogue.gated(_dtype(kernel), *shape)
    if kernel.startswith("linear"):
        return epilogue.linear(_dtype(kernel), *shape)
    return gemm.product(_dtype(kernel), False, shape, library="shipped")


def _attention(kernel: str, dims: dict[str, int]) -> Row:
    made = attention.attention(_dtype(kernel), dims, "causal" in kernel)
    return replace(made, peers={name: made.peers[name] for name in ("cuDNN", "flash")})


def _rows(kernel: str, dims: dict[str, int]) -> Row:
    name, dtype = kernel.replace(EVEN, "").removesuffix(f"_{_dtype(kernel)}"), _dtype(kernel)
    if name == "scale_add":
        return memory.scale_add(dtype, dims["M"] * dims["N"])
    made: Row = getattr(memory, name)(dtype, dims["M"], dims["N"])
    return made


def _quantised(kernel: str, dims: dict[str, int]) -> Row:
    shape = (dims["M"], dims["N"], dims["K"])
    if kernel.endswith("_parts"):
        return quantised.packed(kernel, 4, torch.bfloat16, shape, part=32)
    if "packed" in kernel:
        return quantised.packed(kernel, 4 if "w4" in kernel else 8, torch.float16, shape)
    if kernel in ("linear_fp8", "linear_fp8_few"):
        return gemm.narrow(kernel, shape, fast=True)
    return (quantised.integers if kernel == "linear_int8" else quantised.blocks)(*shape)


def _dtype(kernel: str) -> str:
    """What its name ends in; without one it is for float32."""
    return next((dtype for dtype in _DTYPES if kernel.endswith(f"_{dtype}")), "float32")


_MAKERS = {"products": _product, "attention": _attention, "rows": _rows, "quantised": _quantised}
