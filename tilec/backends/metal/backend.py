"""Apple's GPUs, by the versions of Metal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from tilec.backends.base import CodeGenerator
from tilec.backends.cuda.gpu import LoadedGpu

if TYPE_CHECKING:
    from tilec.backends.limits import Limits
    from tilec.codegen.image import PersistentLaunch
    from tilec.errors import Place
    from tilec.ir.nodes import Kernel
    from tilec.lowering.passes.base import Pass
    from tilec.targets import Target


class MetalBackend(LoadedGpu):
    """One device function per launch, by the general road of CUDA; one source per variant."""

    name = device = "metal"
    title = "Metal"
    word = "Apple GPU"
    example = 'metal = ["metal3"]'
    device_type = "kDLMetal"
    runtime = '#include "devices/metal/metal.c"\n'
    late_stages: ClassVar = {"tir": "tir_text", "source": "source"}
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

    # ---- the package ----

    def read_launch(self, fields: Mapping[str, Any]) -> PersistentLaunch:
        """With the blocks of a core."""
        from tilec.codegen.image import PersistentLaunch, read_launch

        return read_launch(PersistentLaunch, fields)

    # ---- compiling ----

    def passes(self, target: Target) -> tuple[Pass, ...]:
        """Those of CUDA, with products of their own."""
        from tilec.backends.metal.passes import METAL_PASSES

        return METAL_PASSES

    def refuse(self, kernel: Kernel, target: Target) -> None:
        """Also what Metal has nothing for."""
        from tilec.backends.metal.unfit import refuse_unfit

        super().refuse(kernel, target)
        refuse_unfit(kernel)

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
