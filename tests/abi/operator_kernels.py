"""Kernels beside the samples whose parameters and element types frameworks treat in ways of their own."""

from __future__ import annotations

from samples import image, scalar, tensor

from tilec.codegen.image import WorkspaceSlice
from tilec.ir.guards import Guard
from tilec.package.model import DimRecord, KernelRecord, VariantRecord
from tilec.targets import native_host

TARGET = "x86-64-v2" if native_host().arch == "x86_64" else "aarch64"

#: x += step, in place; y = the old x, twice as long as a caller says
BUMP = """
#include <stdint.h>
void {p}_0(float* x, float* y, float step, int64_t n, int64_t m, void* scratch, int64_t begin, int64_t end) {{
  for (int64_t i = begin; i < end; i++) {{
    for (int64_t j = i; j < m; j += n) y[j] = x[i];
    x[i] += step;
  }}
}}
"""


#: y = x by way of a slice, which every element of it has a place in
BY_WAY = """
#include <stdint.h>
void {p}_0(const float* x, float* y, float* room, int64_t n, void* scratch, int64_t begin, int64_t end) {{
  for (int64_t i = begin; i < end; i++) room[i] = x[i];
  for (int64_t i = begin; i < end; i++) y[i] = room[i];
}}
"""


def by_way_kernel() -> KernelRecord:
    """A variant for x at multiples of 32 bytes, which asks for twice what the one for all others does."""
    params = (tensor("x", "float32", "N"), tensor("y", "float32", "N", access="out"))
    variants = []
    for name, size, align in (("near", "8 * N", (("x", 32),)), ("far", "4 * N", ())):
        slices = (WorkspaceSlice("room", size),)
        made = image(f"by_way_{name}", BY_WAY, [("N",)], TARGET, native_host(), workspace=slices)
        variants.append(VariantRecord(TARGET, (("N", Guard(max=16)),) * bool(align), made, align=align))
    return KernelRecord("by_way", params, (DimRecord("N"),), tuple(variants), "y = x")


def bump_kernel() -> KernelRecord:
    """A tensor that is read and written, a dim that no input shows, a scalar with a default."""
    made = image("sample_bump", BUMP, [("N",)], TARGET, native_host())
    params = (
        tensor("x", "float32", "N", access="inout"),
        tensor("y", "float32", "2 * M", access="out"),
        scalar("step", "float32", float("inf")),
    )
    dims = (DimRecord("N"), DimRecord("M"))
    return KernelRecord("bump", params, dims, (VariantRecord(TARGET, (), made),), "x += step")


def packed_kernel() -> KernelRecord:
    """A kernel with an element type that ONNX has no tensors of here."""
    made = image("sample_packed", BUMP, [("N",)], TARGET, native_host())
    params = (tensor("x", "float8_e8m0fnu", "N"), tensor("y", "float8_e8m0fnu", "N", access="out"))
    return KernelRecord("packed", params, (DimRecord("N"),), (VariantRecord(TARGET, (), made),), "")
