"""What families of GPUs share: the general road of this folder, and images that a system loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tilec.backends.base import Backend

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel
    from tilec.lowering.lowered import LoweredKernel
    from tilec.package.model import KernelRecord, PackageSpec
    from tilec.package.text.size_functions import TextFunctions
    from tilec.targets import GpuLimits, Target


class Gpu(Backend):
    """One device function per launch; one image per variant."""

    has_entries = False
    identity = "source"
    emulated = True

    def refuse(self, kernel: Kernel, target: Target) -> None:
        """What begins with sm_90, and fragments that no thread holds."""
        from tilec.backends.cuda.without import refuse_large_fragments, refuse_newer

        refuse_newer(kernel, target)
        refuse_large_fragments(kernel)

    def lower_kernel(self, kernel: Kernel, target: Target) -> LoweredKernel:
        """A device function per launch."""
        from tilec.backends.cuda.emit.entry import lower_kernel

        return lower_kernel(kernel, target)

    def shared_bytes(self, target: Target) -> int | None:
        """Of a block, where it asks for all that it may have."""
        return gpu_of(target).shared_bytes


class LoadedGpu(Gpu):
    """GPUs of others than NVIDIA: their images are loaded whole, as `tilec.package.tables.loaded` has them.

    ``image_align``: bytes of which the address of an image is a multiple."""

    roads = ("tensor_cores", "async_copy", "vectors")
    image_align: ClassVar = 64

    def may_run(self, code: Target, device: Target) -> bool:
        """Code runs on devices of its own target alone."""
        return code.name == device.name

    def files(self, spec: PackageSpec) -> dict[str, bytes]:
        """The images."""
        from tilec.package.tables.loaded import LoadedCode

        return LoadedCode(self.name).images(spec).files()

    def sections(self, spec: PackageSpec) -> str:
        """Section .tilec.<name>."""
        from tilec.package.tables.loaded import LoadedCode

        return LoadedCode(self.name).images(spec).section(self.image_align)

    def declarations(self, spec: PackageSpec) -> str:
        """The images, and places for what the system makes of each."""
        from tilec.package.tables.loaded import LoadedCode

        return LoadedCode(self.name).declarations(spec)

    def codes(self, spec: PackageSpec, kernel: KernelRecord, prefix: str, texts: TextFunctions) -> str:
        """The array ``<prefix>_<name>``."""
        from tilec.package.tables.loaded import LoadedCode

        return LoadedCode(self.name).codes(spec, kernel, prefix)

    def code(self, kernel: KernelRecord, prefix: str, number: int) -> str:
        """An element of that array."""
        from tilec.package.tables.loaded import LoadedCode

        return LoadedCode(self.name).code(kernel, prefix, number)

    def refuse(self, kernel: Kernel, target: Target) -> None:
        """Also lines, checks, barriers of the grid and the like, which are NVIDIA's alone."""
        from tilec.backends.cuda.without import refuse_nvidia_alone

        refuse_nvidia_alone(kernel, self.word)
        super().refuse(kernel, target)


def gpu_of(target: Target) -> GpuLimits:
    """What a block may have on devices of a target for GPUs."""
    assert target.gpu is not None, f"{target.name} is no target of GPUs"
    return target.gpu
