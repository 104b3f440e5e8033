"""AMD GPUs, by the processors of LLVM's AMDGPU backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from tilec.backends.base import Backend, CodeGenerator

if TYPE_CHECKING:
    from tilec.backends.hip.launch import HipLaunch
    from tilec.backends.limits import Limits
    from tilec.errors import Place
    from tilec.ir.nodes import Kernel
    from tilec.lowering.lowered import LoweredKernel
    from tilec.lowering.passes.base import Pass
    from tilec.package.model import KernelRecord, PackageSpec
    from tilec.package.texts import TextFunctions
    from tilec.targets import Target


class HipBackend(Backend):
    """One device kernel per launch, by the general road of CUDA; one code object per variant."""

    name = device = "hip"
    title = "HIP"
    word = "AMD GPU"
    example = 'hip = ["gfx942"]'
    has_entries = False
    device_type = "kDLROCM"
    runtime = '#include "hip.c"\n'
    late_stages: ClassVar = {"tir": "tir_text", "source": "source", "asm": "assembly"}
    identity = "source"
    roads = ("tensor_cores", "async_copy", "vectors")
    kinds = ("hip", "rocm")
    emulated = True
    without_devices = "install ROCm where there is a GPU; `tilec verify --emulate` needs none"

    # ---- facts ----

    def names(self) -> tuple[str, ...]:
        """Processors."""
        from tilec.backends.hip.chips import CHIPS

        return tuple(CHIPS)

    def parse(self, name: str, features: list[str], place: Place | None) -> Target:
        """A processor."""
        from tilec.backends.hip.chips import hip_target

        return hip_target(name, features, place)

    def may_run(self, code: Target, device: Target) -> bool:
        """A code object runs on its own processor alone."""
        return code.name == device.name

    # ---- the package ----

    def read_launch(self, fields: Mapping[str, Any]) -> HipLaunch:
        """With what the code object says."""
        from tilec.backends.hip.launch import HipLaunch
        from tilec.codegen.image import read_launch

        return read_launch(HipLaunch, fields)

    def files(self, spec: PackageSpec) -> dict[str, bytes]:
        """The code objects."""
        from tilec.package.loaded import LoadedCode

        return LoadedCode(self.name).images(spec).files()

    def sections(self, spec: PackageSpec) -> str:
        """Section .tilec.hip, each in pages of its own, as clang's bundles of code objects have them."""
        from tilec.package.loaded import LoadedCode

        return LoadedCode(self.name).images(spec).section(align=4096)

    def declarations(self, spec: PackageSpec) -> str:
        """The code objects, and places for what HIP makes of each."""
        from tilec.package.loaded import LoadedCode

        return LoadedCode(self.name).declarations(spec)

    def codes(self, spec: PackageSpec, kernel: KernelRecord, prefix: str, texts: TextFunctions) -> str:
        """The array ``<prefix>_hip``."""
        from tilec.package.loaded import LoadedCode

        return LoadedCode(self.name).codes(spec, kernel, prefix)

    def code(self, kernel: KernelRecord, prefix: str, number: int) -> str:
        """An element of that array."""
        from tilec.package.loaded import LoadedCode

        return LoadedCode(self.name).code(kernel, prefix, number)

    # ---- compiling ----

    def passes(self, target: Target) -> tuple[Pass, ...]:
        """Those of CUDA, with products of their own."""
        from tilec.backends.hip.passes import HIP_PASSES

        return HIP_PASSES

    def refuse(self, kernel: Kernel, target: Target) -> None:
        """Lines, checks, barriers of the grid, what begins with sm_90, and fragments that no thread holds."""
        from tilec.backends.cuda.without import refuse_large_fragments, refuse_newer, refuse_nvidia_alone

        refuse_nvidia_alone(kernel, self.word)
        refuse_newer(kernel, target)
        refuse_large_fragments(kernel)

    def lower_kernel(self, kernel: Kernel, target: Target) -> LoweredKernel:
        """A device function per launch."""
        from tilec.backends.cuda.emit.entry import lower_kernel

        return lower_kernel(kernel, target)

    def generator(self) -> CodeGenerator:
        """clang, for the C++ that TVM writes."""
        from tilec.backends.hip.codegen import images

        return images

    def load(self) -> None:
        """Passes, emission and the compiler's part."""
        import tilec.backends.cuda.emit.entry
        import tilec.backends.cuda.without
        import tilec.backends.hip.codegen.images
        import tilec.backends.hip.passes  # noqa: F401

    def source_suffix(self, text: str) -> str:
        """Of C++ for devices."""
        return ".hip"

    def compiler(self) -> str:
        """The clang of ziglang."""
        from tilec.backends.hip.codegen.compiler import compiler_name, require_compiler

        require_compiler()
        return compiler_name()

    def compiler_stamp(self) -> list[str]:
        """Its version."""
        from tilec.backends.hip.codegen.compiler import compiler_name

        return [compiler_name()]

    def shared_bytes(self, target: Target) -> int | None:
        """LDS of a block."""
        from tilec.backends.hip.chips import chip_of

        return chip_of(target).shared_bytes

    # ---- devices ----

    def devices(self) -> tuple[str, ...]:
        """As HIP names them."""
        from tilec.backends.hip.driver import device_words

        return device_words()

    def here(self) -> Target | None:
        """Of device 0, where HIP has one."""
        from tilec.backends.hip import driver

        return driver.target_here() if driver.hip_devices() else None

    def units(self, device: int) -> int:
        """Compute units."""
        from tilec.portable.devices.hip import HipDevice

        return int(HipDevice(device).facts()["multiprocessors"])

    def spelled(self, arch: str, mcpu: str) -> Target:
        """By the processor; without one, of device 0."""
        from tilec.backends.hip.driver import target_here

        return super().spelled(arch or mcpu, "") if arch or mcpu else target_here()

    def cache_bytes(self) -> int:
        """The largest that there is."""
        from tilec.portable.devices.hip import CACHE_BYTES

        return CACHE_BYTES

    def limits(self, target: Target, device: Mapping[str, Any], threads: int) -> Limits:
        """By data sheets."""
        from tilec.backends.hip.limits import hip_limits

        return hip_limits(target, device)
