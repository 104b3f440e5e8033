"""A library with CPU and CUDA code whose CUDA images are only names: the stand-in driver in
programs/fake_cuda.c knows what they would do."""

from __future__ import annotations

import hashlib

from samples import compiled, scalar, tensor

from tilec.codegen.image import GpuLaunch, Image, LaunchCode, WorkspaceSlice
from tilec.ir.guards import Guard
from tilec.lowering.lowered import TensorMapCode
from tilec.package.model import DimRecord, KernelRecord, PackageSpec, VariantRecord
from tilec.targets import Host

NAME = "gpu_sample"
BLOCK = 64
GRID = (f"(N + {BLOCK - 1}) // {BLOCK}",)

CPU_ADD = """
#include <stdint.h>
void {p}_0(const float* a, const float* b, float* c, float alpha, int64_t n, void* scratch, int64_t begin,
           int64_t end) {{
  for (int64_t i = 64 * begin; i < n && i < 64 * end; i++) c[i] = a[i] + alpha * b[i];
}}
"""


def cuda_image(prefix: str, target: str, launches: tuple[LaunchCode, ...], workspace: str = "") -> Image:
    code = f"{target} {prefix}\0".encode()
    slices = (WorkspaceSlice("sums", workspace),) if workspace else ()
    min_driver = 12090 if target.startswith("compute") else 12000
    return Image(target, code, hashlib.sha256(code).hexdigest(), launches, slices, "nvrtc 12.9", min_driver)


def launch(symbol: str, grid: tuple[str, ...], **gpu: object) -> LaunchCode:
    return LaunchCode(symbol, grid, (BLOCK, 1, 1), gpu=GpuLaunch(registers=24, static_shared=0, **gpu))


def add_kernel(host: Host) -> KernelRecord:
    """The CPU's variant, and CUDA ones; that of sm_80 wants pairs, for which there is PTX too."""
    cpu = "x86-64-v2" if host.arch == "x86_64" else "aarch64"
    code = compiled(CPU_ADD.format(p="cpu_add"), host)
    made = Image(cpu, code, hashlib.sha256(code).hexdigest(), (LaunchCode("cpu_add_0", GRID, (1, 1, 1)),))
    variants = [VariantRecord(cpu, (), made)]
    even = (("N", Guard(div=2)),)
    for target, name, guards in (
        ("sm_80", "", even),
        ("sm_90a", "", ()),
        ("compute_80", "_even", even),
        ("compute_80", "", ()),
    ):
        prefix = f"add_{target}{name}"
        image = cuda_image(prefix, target, (launch(f"{prefix}_0", GRID, dynamic_shared=65536),))
        variants.append(VariantRecord(target, guards, image))
    params = (
        tensor("a", "float32", "N"),
        tensor("b", "float32", "N"),
        tensor("c", "float32", "N", access="out"),
        scalar("alpha", "float16", 1.0),
    )
    return KernelRecord("add", params, (DimRecord("N"),), tuple(variants), "c = a + alpha * b")


def record_kernel(name: str, launches: tuple[LaunchCode, ...], workspace: str = "") -> KernelRecord:
    """A kernel for sm_80 alone, of which the stand-in driver records the launches."""
    image = cuda_image(name, "sm_80", launches, workspace)
    params = (tensor("x", "int32", "M", "N", access="inout"),)
    return KernelRecord(name, params, (DimRecord("M"), DimRecord("N")), (VariantRecord("sm_80", (), image),))


#: Boxes of 8 x 16 of x[M, N].
MAP = TensorMapCode(0, "int32", ("N", "M"), ("4 * N",), (16, 8), 64)


def cuda_spec(host: Host) -> PackageSpec:
    kernels = (
        add_kernel(host),
        record_kernel("broken", (launch("broken_0", ("N",)), launch("broken_1_fails", ("N",)))),
        record_kernel("mapped", (launch("mapped_0", ("N",)), launch("mapped_1", ("N",), tensor_maps=(MAP,)))),
        record_kernel("persistent", (launch("persistent_0", ("N",), blocks_per_sm=2, cluster=(3, 1, 1)),)),
        record_kernel("programmatic", (launch("programmatic_0", ("N",), programmatic=True),)),
        record_kernel(
            "programmatic_pairs", (launch("pairs_0", ("N",), programmatic=True, cluster=(2, 1, 1)),)
        ),
        record_kernel("wide", (launch("wide_0", ("1", "N")),)),
        record_kernel("work", (launch("work_0", ("N",)), launch("work_1", ("M", "N"))), "4 * M"),
    )
    return PackageSpec(NAME, "1.0.0", host, kernels, {"tilec": "test"})
