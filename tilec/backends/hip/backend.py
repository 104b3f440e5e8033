"""AMD GPUs, by the processors of LLVM's AMDGPU backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from tilec.backends.base import CodeGenerator
from tilec.backends.cuda.gpu import LoadedGpu

if TYPE_CHECKING:
    from tilec.backends.hip.launch import HipLaunch
    from tilec.backends.limits import Limits
    from tilec.errors import Place
    from tilec.lowering.passes.base import Pass
    from tilec.targets import Target


class HipBackend(LoadedGpu):
    """One device kernel per launch, by the general road of CUDA; one code object per variant."""

    name = device = "hip"
    title = "HIP"
    word = "AMD GPU"
    example = 'hip = ["gfx942"]'
    device_type = "kDLROCM"
    runtime = '#include "devices/hip/hip.c"\n'
    late_stages: ClassVar = {"tir": "tir_text", "source": "source", "asm": "assembly"}
    kinds = ("hip", "rocm")
    image_align = 4096  # pages of their own, as clang's bundles of code objects have them
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

    # ---- the package ----

    def read_launch(self, fields: Mapping[str, Any]) -> HipLaunch:
        """With what the code object says."""
        from tilec.backends.hip.launch import HipLaunch
        from tilec.codegen.image import read_launch

        return read_launch(HipLaunch, fields)

    # ---- compiling ----

    def passes(self, target: Target) -> tuple[Pass, ...]:
        """Those of CUDA, with products of their own."""
        from tilec.backends.hip.passes import HIP_PASSES

        return HIP_PASSES

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
