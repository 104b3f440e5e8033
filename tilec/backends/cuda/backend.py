"""NVIDIA GPUs, by their compute capability, and PTX for those to come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from tilec.backends.base import CodeGenerator
from tilec.backends.cuda.gpu import Gpu, gpu_of

if TYPE_CHECKING:
    from tilec.backends.ceilings import Ceilings
    from tilec.backends.cuda.launch import CudaLaunch
    from tilec.backends.limits import Limits
    from tilec.errors import Place
    from tilec.lowering.passes.base import Pass
    from tilec.package.model import KernelRecord, PackageSpec, VariantRecord
    from tilec.package.text.size_functions import TextFunctions
    from tilec.targets import Target

#: The target with wgmma, and the roads that bulk copies alone open.
_HOPPER, _BY_TMA = "sm_90a", ("warp_roles", "tma")


class CudaBackend(Gpu):
    """One device kernel per launch; one cubin or PTX text per variant, through CUDA C++."""

    name = device = "cuda"
    title = "CUDA"
    word = "GPU"
    example = 'cuda = ["sm_90a"]'
    device_type = "kDLCUDA"
    max_tensor_maps = 16  # that the runtime encodes for one call
    runtime = f'enum {{ MAX_TENSOR_MAPS = {max_tensor_maps} }};\n#include "devices/cuda/cuda.c"\n'
    late_stages: ClassVar = {"tir": "tir_text", "source": "source", "asm": "assembly"}
    roads = ("warp_roles", "wgmma", "tensor_cores", "tma", "async_copy", "vectors")
    rounds_products = known_rates = True
    listings = ("PTX", "SASS")
    compile_seconds = 1.2
    without_devices = "install NVIDIA's driver where there is a GPU; `tilec verify --emulate` needs none"
    kinds = ("cuda",)
    aliases: ClassVar = dict.fromkeys(("sm_90", "90", "90a"), _HOPPER)

    # ---- facts ----

    def names(self) -> tuple[str, ...]:
        """Real architectures and virtual ones."""
        from tilec.targets import CUDA_TARGETS

        return CUDA_TARGETS

    def parse(self, name: str, features: list[str], place: Place | None) -> Target:
        """An architecture."""
        from tilec.targets import cuda_target

        return cuda_target(name, features, place)

    def may_run(self, code: Target, device: Target) -> bool:
        """A GPU has the capability of its target; ``compute_90`` stands for a GPU that is newer than every
        cubin, on which PTX up to that capability remains."""
        wanted, given = gpu_of(code), gpu_of(device)
        return (wanted.is_ptx or not given.is_ptx) and wanted.runs_on(given.capability)

    # ---- the package ----

    def arch_facts(self, spec: PackageSpec, target: Target) -> tuple[int, ...]:
        """As enum cuda_fact of runtime_c/src/devices/cuda/cuda.h."""
        from tilec.backends.cuda.table import min_driver

        gpu = gpu_of(target)
        return (gpu.capability, min_driver(spec, target.name), int(gpu.exact), int(gpu.is_ptx))

    def read_launch(self, fields: Mapping[str, Any]) -> CudaLaunch:
        """With tensor maps."""
        from tilec.backends.cuda.launch import read_launch

        return read_launch(fields)

    def check(self, kernel: KernelRecord, variant: VariantRecord) -> None:
        """The tensor maps of a variant have a place each."""
        from tilec.backends.cuda.table import check_maps

        check_maps(kernel, variant, self.max_tensor_maps)

    def files(self, spec: PackageSpec) -> dict[str, bytes]:
        """The images."""
        from tilec.backends.cuda.table import cuda_images

        return cuda_images(spec).files()

    def sections(self, spec: PackageSpec) -> str:
        """Section .tilec.cuda."""
        from tilec.backends.cuda.table import cuda_images

        return cuda_images(spec).section()

    def declarations(self, spec: PackageSpec) -> str:
        """The images, and a place for what the driver makes of each."""
        from tilec.backends.cuda.table import images_source

        return images_source(spec)

    def codes(self, spec: PackageSpec, kernel: KernelRecord, prefix: str, texts: TextFunctions) -> str:
        """The array ``<prefix>_cuda``."""
        from tilec.backends.cuda.table import cuda_source

        return cuda_source(spec, kernel, prefix, texts)

    def code(self, kernel: KernelRecord, prefix: str, number: int) -> str:
        """An element of that array."""
        from tilec.backends.cuda.table import cuda_reference

        return cuda_reference(kernel, prefix, number)

    # ---- compiling ----

    def passes(self, target: Target) -> tuple[Pass, ...]:
        """Where TMA brings tiles, warp roles stand in front of the others', in more forms with wgmma."""
        from tilec.backends.cuda.limits import has_tma, has_wgmma
        from tilec.backends.cuda.strategies import HOPPER_PASSES, PLAIN_PASSES, TMA_PASSES

        if has_wgmma(target):
            return HOPPER_PASSES
        return TMA_PASSES if has_tma(target) else PLAIN_PASSES

    def generator(self) -> CodeGenerator:
        """NVRTC or nvcc, for the CUDA C++ that TVM writes."""
        from tilec.backends.cuda.codegen import images

        return images

    def load(self) -> None:
        """Passes, strategies, emission and the compilers' part."""
        import tilec.backends.cuda.codegen.images
        import tilec.backends.cuda.emit.entry
        import tilec.backends.cuda.passes.order
        import tilec.backends.cuda.strategies
        import tilec.backends.cuda.without  # noqa: F401

    def source_suffix(self, text: str) -> str:
        """Of CUDA C++."""
        return ".cu"

    def compiler(self) -> str:
        """NVRTC, or the nvcc that is named."""
        from tilec.backends.cuda.codegen.compilers import describe, find_compiler

        return describe(find_compiler())

    def compiler_stamp(self) -> list[str]:
        """The compiler that settings name."""
        from tilec.backends.cuda.codegen.stamp import compiler_stamp

        return compiler_stamp()

    def target_with(self, road: str, target: Target) -> str | None:
        """wgmma is of one target alone, TMA of that and all later ones."""
        from tilec.backends.cuda.limits import has_tma, has_wgmma

        lacks = road in _BY_TMA and not has_tma(target)
        return _HOPPER if lacks or (road == "wgmma" and not has_wgmma(target)) else None

    # ---- devices ----

    def here(self) -> Target | None:
        """Of device 0, where the driver has one."""
        from tilec.backends.cuda import driver

        return driver.target_here() if driver.cuda_devices() else None

    def devices(self) -> tuple[str, ...]:
        """As the driver names them."""
        from tilec.backends.cuda.driver import device_words

        return device_words()

    def units(self, device: int) -> int:
        """Multiprocessors."""
        from tilec.backends.cuda.driver import multiprocessors

        return multiprocessors(device)

    def spelled(self, arch: str, mcpu: str) -> Target:
        """By the architecture; without one, of device 0."""
        from tilec.backends.cuda.driver import target_here

        return super().spelled(arch, mcpu) if arch else target_here()

    def tvm_arch(self, arch: str) -> str:
        """TVM makes up an architecture where it finds no CUDA."""
        from tilec.backends.cuda.driver import without_made_up

        return without_made_up(arch)

    def ceilings(self, device: int, threads: int) -> Ceilings:
        """By a probe that is compiled for the device."""
        from tilec.backends.cuda.probe import cuda_ceilings

        return cuda_ceilings(device)

    def cache_bytes(self) -> int:
        """More than the second-level cache of any GPU that tilec has code for holds."""
        return 160 << 20

    def limits(self, target: Target, device: Mapping[str, Any], threads: int) -> Limits:
        """By capability, clock and multiprocessors."""
        from tilec.backends.cuda.limits import gpu_limits

        return gpu_limits(target, device)

    def runs_on(self, device: Mapping[str, Any], target: Target) -> bool:
        """A GPU of a capability that the target's code runs on."""
        return "major" in device and gpu_of(target).runs_on(10 * int(device["major"]) + int(device["minor"]))
