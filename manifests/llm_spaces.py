"""What `tilec tune` searches for kernels of llm.toml whose tiles depend on the number of rows."""

from __future__ import annotations

from itertools import product
from typing import Any


def _all(**values: list[Any]) -> list[dict[str, Any]]:
    """The product of lists."""
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def matmul_16_bit(dims: dict[str, Any], target: str) -> list[dict[str, Any]]:
    """Products of 16-bit operands on sm_90a: few rows are the columns of a transposed product, which K is
    split over blocks for; many rows take large tiles."""
    if dims["N"] == "dynamic" or dims["K"] == "dynamic":
        return _all(bM=[64, 128], bN=[128, 256], bK=[64], num_stages=[4, 6, 8], threads=[128, 256])
    if dims["M"] == "dynamic":
        return _all(bM=[64, 128, 256], bN=[128, 192, 256], num_stages=[3, 4, 5, 6], threads=[128, 256])
    rows = [16] if dims["M"] == "1..16" else [64, 128]
    wide = _all(bM=rows, bN=[128], bK=[64, 128], num_stages=[4, 6, 8], threads=[256], split_k=[1, 2])
    narrow = _all(bM=rows, bN=[64], bK=[64, 128, 256], num_stages=[4, 6, 8], threads=[128], split_k=[1, 2, 4])
    return wide + narrow
