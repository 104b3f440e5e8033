"""A library whose entries are written in C: everything behind code generation, without code generation."""

from __future__ import annotations

import functools
import hashlib
import tempfile
from pathlib import Path

from tilec.codegen.image import Image, LaunchCode, WorkspaceSlice
from tilec.codegen.toolchain import find_toolchain
from tilec.ir.guards import Guard
from tilec.package.model import DimRecord, KernelRecord, PackageSpec, ParamRecord, VariantRecord
from tilec.targets import Host, parse_host

NAME = "sample"

#: blocks of 64 elements; the scratch holds the block's index, so that workers that share it are found out
ADD = """
#include <stdint.h>
void {p}_0(const float* a, const float* b, float* c, int64_t n, int64_t* scratch, int64_t begin,
           int64_t end) {{
  for (int64_t block = begin; block < end; block++) {{
    scratch[0] = block;
    for (int64_t i = 64 * block; i < n && i < 64 * block + 64; i++) c[i] = a[i] + b[i];
    if (scratch[0] != block) c[64 * block] = -1.0f;
  }}
}}
"""

#: C[M, N] = alpha * A[M, K] B[K, N], one row a block
MATMUL = """
#include <stdint.h>
void {p}_0(const float* a, const float* b, float* c, float alpha, int64_t m, int64_t n, int64_t k,
           void* scratch, int64_t begin, int64_t end) {{
  for (int64_t i = begin; i < end; i++)
    for (int64_t j = 0; j < n; j++) {{
      float sum = 0;
      for (int64_t l = 0; l < k; l++) sum += a[i * k + l] * b[l * n + j];
      c[i * n + j] = alpha * sum;
    }}
}}
"""

#: the sums of rows with a stride go to a slice, then every element is divided by its row's sum
NORMALIZE = """
#include <stdint.h>
void {p}_0(const float* x, float* y, float* sums, int64_t m, int64_t n, int64_t s, void* scratch,
           int64_t begin, int64_t end) {{
  for (int64_t i = begin; i < end; i++) {{
    sums[i] = 0;
    for (int64_t j = 0; j < n; j++) sums[i] += x[i * s + j];
  }}
}}
void {p}_1(const float* x, float* y, float* sums, int64_t m, int64_t n, int64_t s, void* scratch,
           int64_t begin, int64_t end) {{
  for (int64_t i = begin; i < end; i++)
    for (int64_t j = 0; j < n; j++) y[i * n + j] = x[i * s + j] / sums[i];
}}
"""

#: out[i] = flag ? x[i] + shift : -x[i], over unpacked pairs; n is a scalar that is a dim as well
MIXED = """
#include <stdint.h>
void {p}_0(const int8_t* x, int32_t* y, int32_t n, int32_t flag, int64_t shift, double scale, int64_t dim_n,
           void* scratch, int64_t begin, int64_t end) {{
  for (int64_t i = begin; i < end; i++) y[i] = (int32_t)(scale * (flag ? x[i / 2] + shift : -x[i / 2]));
}}
"""

X86 = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


@functools.cache
def compiled(text: str, host: Host) -> bytes:
    """The object code of a C text."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "entry.c")
        source.write_text(text)
        made = find_toolchain(host).compile(source, Path(folder))
        return made.read_bytes()


def image(
    prefix: str, text: str, grids: list[tuple[str, ...]], target: str, host: Host, **more: object
) -> Image:
    code = compiled(text.format(p=prefix), host)
    launches = tuple(
        LaunchCode(f"{prefix}_{i}", grid, (1, 1, 1), int(more.get("scratch", 0)))
        for i, grid in enumerate(grids)
    )
    return Image(target, code, hashlib.sha256(code).hexdigest(), launches, tuple(more.get("workspace", ())))


def tensor(
    name: str, dtype: str, *extents: str, access: str = "in", strides: tuple[str, ...] | None = None
) -> ParamRecord:
    return ParamRecord(name, "tensor", dtype, access, access == "out", extents, strides)


def scalar(name: str, dtype: str, default: float | None = None) -> ParamRecord:
    return ParamRecord(name, "scalar", dtype, default=default)


def add_kernel(targets: tuple[str, ...], host: Host) -> KernelRecord:
    variants = tuple(
        VariantRecord(
            target,
            (),
            image(f"sample_add_{i}_{len(align)}", ADD, [("(N + 63) // 64",)], target, host, scratch=64),
            config={"block": 64},
            ir_text="kernel add",
            align=align,
        )
        for i, target in enumerate(targets)
        for align in ((), (("a", 64), ("c", 32)))
    )
    params = (
        tensor("a", "float32", "N"),
        tensor("b", "float32", "N"),
        tensor("c", "float32", "N", access="out"),
    )
    return KernelRecord("add", params, (DimRecord("N"),), variants, "c = a + b")


MATMUL_GUARDS = (
    (("M", Guard()), ("N", Guard(eq=16)), ("K", Guard(eq=8))),
    (("M", Guard(min=1, max=64)), ("N", Guard(eq=16)), ("K", Guard(eq=8))),
    (("M", Guard(eq=3)), ("N", Guard(eq=16)), ("K", Guard(eq=8))),
    (("M", Guard(div=4)), ("N", Guard(eq=16))),
    (("N", Guard(div=32)),),
    (("K", Guard(min=100)),),
)


def matmul_kernel(targets: tuple[str, ...], host: Host) -> KernelRecord:
    variants = tuple(
        VariantRecord(
            target,
            tuple((name, guard) for name, guard in guards if not guard.is_dynamic),
            image(f"sample_matmul_{t}_{g}", MATMUL, [("M",)], target, host),
            ir_text=f"kernel matmul {g}",
        )
        for t, target in enumerate(targets)
        for g, guards in enumerate(MATMUL_GUARDS)
    )
    params = (
        tensor("A", "float32", "M", "K"),
        tensor("B", "float32", "K", "N"),
        tensor("C", "float32", "M", "N", access="out"),
        scalar("alpha", "float16", 1.0),
    )
    dims = (DimRecord("M"), DimRecord("N", 64), DimRecord("K"))
    layer = {"name": "Product", "forward": ("A",), "members": {"B": "weight"}}
    return KernelRecord("matmul", params, dims, variants, "C = alpha * A @ B", layer=layer)


def normalize_kernel(target: str, host: Host) -> KernelRecord:
    made = image(
        "sample_normalize",
        NORMALIZE,
        [("M",), ("M",)],
        target,
        host,
        workspace=(WorkspaceSlice("sums", "select(S < 4096, 4 * M, 8 * S)"),),
    )
    params = (
        tensor("x", "float32", "M", "N", strides=("S", "1")),
        tensor("y", "float32", "M", "N", access="out"),
    )
    dims = (DimRecord("M"), DimRecord("N"), DimRecord("S", 64))
    return KernelRecord(
        "normalize", params, dims, (VariantRecord(target, (), made),), "rows divided by their sums"
    )


def mixed_kernel(target: str, host: Host) -> KernelRecord:
    made = image("sample_mixed", MIXED, [("n",)], target, host)
    params = (
        tensor("x", "int8", "n // 2"),
        tensor("y", "int32", "n", access="out"),
        scalar("n", "int32"),
        scalar("flag", "bool"),
        scalar("shift", "int64"),
        scalar("scale", "float64"),
    )
    guards = (("n", Guard(div=2)),)
    return KernelRecord(
        "mixed", params, (DimRecord("n"),), (VariantRecord(target, guards, made),), "every kind of scalar"
    )


def sample_spec(host: Host | None = None, name: str = NAME) -> PackageSpec:
    host = host or parse_host("x86_64-linux-gnu")
    targets = X86 if host.arch == "x86_64" else ("aarch64",)
    kernels = (
        add_kernel(targets, host),
        matmul_kernel(targets, host),
        normalize_kernel(targets[0], host),
        mixed_kernel(targets[:2][-1], host),
    )
    return PackageSpec(name, "1.2.3", host, kernels, {"tilec": "test"})
