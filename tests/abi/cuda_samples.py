"""A library with CPU and CUDA code whose CUDA images are only names: the stand-in driver in
programs/fake_cuda.c knows what they would do."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial

from samples import compiled, scalar, tensor

from tilec.backends.cuda.launch import CudaLaunch, TensorMapCode, WindowCode
from tilec.codegen.image import Image, LaunchCode, WorkspaceSlice
from tilec.ir.guards import Guard
from tilec.package.model import DimRecord, KernelRecord, PackageSpec, ParamRecord, VariantRecord
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
    return LaunchCode(symbol, grid, (BLOCK, 1, 1), gpu=CudaLaunch(registers=24, static_shared=0, **gpu))


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
    return _recorded(name, (VariantRecord("sm_80", (), cuda_image(name, "sm_80", launches, workspace)),))


def kernel_of_targets(name: str, targets: tuple[str, ...]) -> KernelRecord:
    """A kernel with an image for each target."""
    symbols = {target: f"{name}_{target}" for target in targets}
    launches = {target: (launch(f"{symbol}_0", ("N",)),) for target, symbol in symbols.items()}
    images = {target: cuda_image(symbols[target], target, launches[target]) for target in targets}
    return _recorded(name, tuple(VariantRecord(target, (), image) for target, image in images.items()))


def _recorded(name: str, variants: tuple[VariantRecord, ...]) -> KernelRecord:
    params = (tensor("x", "int32", "M", "N", access="inout"),)
    return KernelRecord(name, params, (DimRecord("M"), DimRecord("N")), variants)


def per_multiprocessor_kernel() -> KernelRecord:
    """A grid and a workspace of as many parts as the device has multiprocessors, and a tensor map behind the
    dims."""
    sized = (launch("per_multiprocessor_0", ("_num_sms",), tensor_maps=(MAP,)),)
    made = record_kernel("per_multiprocessor", sized, "4 * _num_sms * M")
    return replace(made, variants=tuple(replace(one, takes_num_sms=True) for one in made.variants))


#: Boxes of 8 x 16 of x[M, N], those with the rows beyond whole ones, and with half of those beyond 15.
MAP = TensorMapCode(0, "int32", ("N", "M"), ("4 * N",), (16, 8), 64)
REST, HALF = replace(MAP, rest=8), replace(MAP, rest=15)

#: 16 pixels of x[M, N] as M lines of pixels with 4 channels; filters end 2 pixels behind their first tap.
WINDOW = WindowCode(lower=(-1,), upper=(-2,), steps=(2,))
IMAGE = TensorMapCode(0, "int32", ("4", "N // 4", "M"), ("16", "4 * N"), (4, 16), 0, WINDOW)


def cuda_spec(host: Host) -> PackageSpec:
    kernels = (
        add_kernel(host),
        record_kernel("broken", (launch("broken_0", ("N",)), launch("broken_1_fails", ("N",)))),
        record_kernel("cooperative", (launch("cooperative_0", ("N",), cooperative=True),)),
        record_kernel("elements", (launch("elements_0", ("N",), wide=()),)),
        record_kernel("mapped_image", (launch("mapped_image_1", ("N",), tensor_maps=(IMAGE,)),)),
        record_kernel("mapped", (launch("mapped_0", ("N",)), launch("mapped_1", ("N",), tensor_maps=(MAP,)))),
        record_kernel("mapped_rest", (launch("mapped_rest_0", ("N",), tensor_maps=(REST, HALF)),)),
        record_kernel("persistent", (launch("persistent_0", ("N",), blocks_per_sm=2, cluster=(3, 1, 1)),)),
        record_kernel("programmatic", (launch("programmatic_0", ("N",), programmatic=True),)),
        record_kernel(
            "programmatic_deep",
            (launch("deep_0", ("N",), programmatic=True, loaded="M * 1024", blocks_per_sm=1),),
        ),
        record_kernel(
            "programmatic_pairs", (launch("pairs_0", ("N",), programmatic=True, cluster=(2, 1, 1)),)
        ),
        per_multiprocessor_kernel(),
        record_kernel("spoil", (launch("scale_spoil_0", ("N",)),)),
        record_kernel("wide", (launch("wide_0", ("1", "N")),)),
        record_kernel("work", (launch("work_0", ("N",)), launch("work_1", ("M", "N"))), "4 * M"),
    )
    return PackageSpec(NAME, "1.0.0", host, kernels, {"tilec": "test"})


SCALE_IR = """\
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


def scale_kernel(name: str) -> KernelRecord:
    """y = alpha * x, as far as the stand-in driver does what is right for ``name``."""
    x = ParamRecord("x", "tensor", "float32", "in", False, ("m", "n"), ("ld", "1"))
    params = (x, scalar("alpha", "float32", None), tensor("y", "float32", "m", "n", access="out"))
    dims = tuple(map(DimRecord, ("m", "n", "ld")))
    return KernelRecord(name, params, dims, tuple(map(partial(_scale_variant, name), ("sm_80", "sm_90a"))))


def _scale_variant(name: str, target: str) -> VariantRecord:
    image = cuda_image(f"{name}_{target}", target, (launch(f"{name}_{target}_0", ("m",)),))
    return VariantRecord(target, (("m", Guard(div=4, max=64)),), image, {"block": 8}, ir_text=SCALE_IR)


def scale_spec(host: Host, *names: str) -> PackageSpec:
    """A library of such kernels."""
    return PackageSpec("gpu_scales", "1.0", host, tuple(map(scale_kernel, names)), {"tilec": "test"})
