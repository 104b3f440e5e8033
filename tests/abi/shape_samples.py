"""A kernel whose outputs have extents of every form, in C, for this machine."""

from __future__ import annotations

from typing import Any

from samples import image, scalar, tensor

from tilec.package.model import DimRecord, KernelRecord, VariantRecord
from tilec.targets import CPU_LEVELS, native_host, parse_target

LEVEL = next(name for name in CPU_LEVELS if parse_target(name).arch == native_host().arch)
#: What each output is as long as.
EXTENTS = {
    "half": "N // 2",
    "padded": "(M + 7) // 8 * 8",
    "least": "min(M, N)",
    "most": "max(M, 4)",
    "rest": "M % 4 + 2",
    "chosen": "select(M < N, M, N)",
    "shifted": "N + P",
    "hidden": "K",
    "pinned": "3",
}
ADDRESSES = ", ".join(f"float* {name}" for name in EXTENTS)
SHAPES = f"""
#include <stdint.h>
void {{p}}_0(const float* x, {ADDRESSES}, int32_t p, int64_t m, int64_t n, int64_t s, int64_t pdim, int64_t k,
           void* scratch, int64_t begin, int64_t end) {{{{
  for (int64_t i = 0; i < n / 2; i++) half[i] = x[i];
  for (int64_t i = 0; i < (m + 7) / 8 * 8; i++) padded[i] = i < m ? x[i * s] : 0;
  for (int64_t i = 0; i < (m < n ? m : n); i++) least[i] = chosen[i] = x[i * s + i];
  for (int64_t i = 0; i < (m > 4 ? m : 4); i++) most[i] = i;
  for (int64_t i = 0; i < m % 4 + 2; i++) rest[i] = m;
  for (int64_t i = 0; i < n + p; i++) shifted[i] = p;
  for (int64_t i = 0; i < k; i++) hidden[i] = k;
  for (int64_t i = 0; i < 3; i++) pinned[i] = i;
}}}}
"""


def kernel(name: str, text: str, params: list[Any], dims: list[str], **more: Any) -> KernelRecord:
    """One of one variant, which runs as one block."""
    made = image(f"shapes_{name}", text, [("1",)], LEVEL, native_host())
    records = tuple(DimRecord(dim, 64) for dim in dims)
    return KernelRecord(name, tuple(params), records, (VariantRecord(LEVEL, (), made),), **more)


def shapes_kernel() -> KernelRecord:
    """A strided input, a scalar that is a dim, and an output for each form."""
    outputs = [tensor(name, "float32", extent, access="out") for name, extent in EXTENTS.items()]
    x = tensor("x", "float32", "M", "N", strides=("S", "1"))
    return kernel("shapes", SHAPES, [x, *outputs, scalar("P", "int32")], ["M", "N", "S", "P", "K"])


def lengths(m: int, n: int, p: int, k: int) -> list[int]:
    """Of the outputs."""
    return [n // 2, (m + 7) // 8 * 8, min(m, n), max(m, 4), m % 4 + 2, min(m, n), n + p, k, 3]
