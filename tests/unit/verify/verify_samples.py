"""A library of one kernel written in C, right and with defects; its tile IR says what it should do."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from tilec.codegen.image import Image, LaunchCode
from tilec.codegen.toolchain import find_toolchain
from tilec.ir.guards import Guard
from tilec.package.model import DimRecord, KernelRecord, PackageSpec, ParamRecord, VariantRecord
from tilec.package.write import write_package
from tilec.targets import native_host

IR = """\
kernel("scale")
m = dim(int32, div=4, max=64)
n = dim(int32)
ld = dim(int32)
x = tensor(float32, (m, n), ("m", "n"), strides=(ld, 1), stride_texts=("ld", "1"), access="in")
alpha = scalar(float32)
y = tensor(float32, (m, n), ("m", "n"), access="out")
with launch(m, threads=(128, 1, 1)) as (bx,):
    for j in parallel(n):
        y[bx, j] = x[bx, j] * alpha
"""
C = """
#include <stdint.h>
void NAME_0(float* x, float* y, float alpha, int64_t m, int64_t n, int64_t ld, void* scratch,
            int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) {
    for (int64_t j = 0; j < n; j++) y[i * n + j] = x[i * ld + j] * alpha;
    DEFECT
  }
}
"""
DEFECTS = {
    "right": "",
    "wrong tail": "if (n % 8 == 7) y[i * n + n - 1] = 0;",
    "unwritten": 'if (i == 0) y[0] = __builtin_nanf("");',
    "writes past the end": "if (i == m - 1) y[m * n] = 1;",
    "writes before the start": "if (i == 0) y[-1] = 1;",
    "writes its input": "x[i * ld] = 0;",
    "writes between rows": "if (ld > n) x[i * ld + n] = 0;",
    "drops NaN": "for (int64_t j = 0; j < n; j++) if (x[i * ld + j] != x[i * ld + j]) y[i * n + j] = 0;",
    "drops infinity": "for (int64_t j = 0; j < n; j++) if (y[i * n + j] > 3e38f) y[i * n + j] = 3e38f;",
    "needs aligned rows": "if ((uintptr_t)x % 16) y[i * n] = 0;",
    "differs between calls": "static int calls; if (i == 0) y[0] *= 1 + 1e-6f * (++calls % 2);",
    "crashes": "if (n == 1) *(volatile int*)8 = 1;",
    "hangs": "while (n == 7 && *(volatile int64_t*)&n) {}",
}


def kernel_name(defect: str) -> str:
    """The kernel with a defect."""
    return re.sub(r"\W", "_", defect)


def build(folder: Path, more: str = "") -> Path:
    """Builds the library, one kernel per defect, and returns its path. ``more``: C code beside the first."""
    host = native_host()
    names = [kernel_name(defect) for defect in DEFECTS]
    sources = [folder / f"{name}.c" for name in names]
    for source, name, defect in zip(sources, names, DEFECTS.values(), strict=True):
        source.write_text(C.replace("NAME", name).replace("DEFECT", defect) + more * (name == "right"))
    tools = find_toolchain(host)
    target = "x86-64-v2" if host.arch == "x86_64" else "aarch64"
    kernels = [
        _kernel(name, tools.compile(source, folder).read_bytes(), target)
        for name, source in zip(names, sources, strict=True)
    ]
    spec = PackageSpec("scales", "1.0", host, tuple(kernels), {"tilec": "test"})
    return write_package(spec, folder / "out").library


def _kernel(name: str, code: bytes, target: str) -> KernelRecord:
    launch = LaunchCode(f"{name}_0", ("m",), (1, 1, 1))
    image = Image(target, code, hashlib.sha256(code).hexdigest(), (launch,))
    variant = VariantRecord(target, (("m", Guard(div=4, max=64)),), image, {"block": 8}, ir_text=IR)
    params = (
        ParamRecord("x", "tensor", "float32", "in", False, ("m", "n"), ("ld", "1")),
        ParamRecord("alpha", "scalar", "float32"),
        ParamRecord("y", "tensor", "float32", "out", True, ("m", "n")),
    )
    dims = (DimRecord("m"), DimRecord("n"), DimRecord("ld"))
    return KernelRecord(name, params, dims, (variant,), "y = alpha * x")
