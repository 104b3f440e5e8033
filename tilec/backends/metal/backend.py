"""Apple's GPUs, by the versions of Metal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from tilec.backends.base import Backend, CodeGenerator

if TYPE_CHECKING:
    from tilec.backends.limits import Limits
    from tilec.codegen.image import PersistentLaunch
    from tilec.errors import Place
    from tilec.ir.nodes import Kernel
    from tilec.lowering.lowered import LoweredKernel
    from tilec.lowering.passes.base import Pass
    from tilec.package.model import KernelRecord, PackageSpec
    from tilec.package.texts import TextFunctions
    from tilec.targets import Target


class MetalBackend(Backend):
    """One device function per launch, by the general road of CUDA; one source per variant."""

    name = device = "metal"
    title = "Metal"
    word = "Apple GPU"
    example = 'metal = ["metal3"]'
    has_entries = False
    device_type = "kDLMetal"
    runtime = '#include "metal.c"\n'
    late_stages: ClassVar = {"tir": "tir_text", "source": "source"}
    identity = "source"
    roads = ("tensor_cores", "async_copy", "vectors")
    emulated = True
    without_devices = "copy the package to macOS; `tilec verify --emulate` needs none"

    # ---- facts ----

    def names(self) -> tuple[str, ...]:
        """Versions of Metal."""
        from tilec.backends.metal.devices import VERSIONS

        return VERSIONS

    def parse(self, name: str, features: list[str], place: Place | None) -> Target:
        """A version."""
        from tilec.backends.metal.devices import metal_target

        return metal_target(name, features, place)

    def may_run(self, code: Target, device: Target) -> bool:
        """Source of a version is compiled by every device that has it."""
        return code.name == device.name

    # ---- the package ----

    def read_launch(self, fields: Mapping[str, Any]) -> PersistentLaunch:
        """With the blocks of a core."""
        from tilec.codegen.image import PersistentLaunch, read_launch

        return read_launch(PersistentLaunch, fields)

    def files(self, spec: PackageSpec) -> dict[str, bytes]:
        """The sources."""
        from tilec.package.loaded import LoadedCode

        return LoadedCode(self.name).images(spec).files()

    def sections(self, spec: PackageSpec) -> str:
        """Section .tilec.metal."""
        from tilec.package.loaded import LoadedCode

        return LoadedCode(self.name).images(spec).section()

    def declarations(self, spec: PackageSpec) -> str:
        """The sources, and places for what Metal makes of each."""
        from tilec.package.loaded import LoadedCode

        return LoadedCode(self.name).declarations(spec)

    def codes(self, spec: PackageSpec, kernel: KernelRecord, prefix: str, texts: TextFunctions) -> str:
        """The array ``<prefix>_metal``."""
        from tilec.package.loaded import LoadedCode

        return LoadedCode(self.name).codes(spec, kernel, prefix)

    def code(self, kernel: KernelRecord, prefix: str, number: int) -> str:
        """An element of that array."""
        from tilec.package.loaded import LoadedCode

        return LoadedCode(self.name).code(kernel, prefix, number)

    # ---- compiling ----

    def passes(self, target: Target) -> tuple[Pass, ...]:
        """Those of CUDA, with products of their own."""
        from tilec.backends.metal.passes import METAL_PASSES

        return METAL_PASSES

    def refuse(self, kernel: Kernel, target: Target) -> None:
        """Also what Metal has nothing for."""
        from tilec.backends.cuda.without import refuse_large_fragments, refuse_newer, refuse_nvidia_alone
        from tilec.backends.metal.unfit import refuse_unfit

        refuse_nvidia_alone(kernel, self.word)
        refuse_newer(kernel, target)
        refuse_large_fragments(kernel)
        refuse_unfit(kernel)

    def lower_kernel(self, kernel: Kernel, target: Target) -> LoweredKernel:
        """A device function per launch."""
        from tilec.backends.cuda.emit.entry import lower_kernel

        return lower_kernel(kernel, target)

    def generator(self) -> CodeGenerator:
        """The writer of Metal's language."""
        from tilec.backends.metal.codegen import images

        return images

    def load(self) -> None:
        """Passes, emission and the writer."""
        import tilec.backends.cuda.emit.entry
        import tilec.backends.cuda.without
        import tilec.backends.metal.codegen.images
        import tilec.backends.metal.passes  # noqa: F401

    def source_suffix(self, text: str) -> str:
        """Of Metal's language."""
        return ".metal"

    def shared_bytes(self, target: Target) -> int | None:
        """Threadgroup memory."""
        from tilec.backends.metal.devices import SHARED_BYTES

        return SHARED_BYTES

    # ---- devices ----

    def devices(self) -> tuple[str, ...]:
        """The GPU of the system, by its name."""
        from tilec.portable.devices.metal import MetalDevice
        from tilec.portable.loader import LaunchError

        try:
            return (MetalDevice().facts()["name"],)
        except LaunchError:
            return ()

    def cache_bytes(self) -> int:
        """The largest that there is."""
        from tilec.portable.devices.metal import CACHE_BYTES

        return CACHE_BYTES

    def limits(self, target: Target, device: Mapping[str, Any], threads: int) -> Limits:
        """By the figures of a usual device."""
        from tilec.backends.metal.limits import metal_limits

        return metal_limits(device)
