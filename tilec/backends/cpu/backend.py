"""CPUs: x86-64 from level 2 on, and aarch64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from tilec.backends.base import Backend, CodeGenerator

if TYPE_CHECKING:
    from tilec.backends.ceilings import Ceilings
    from tilec.backends.limits import Limits
    from tilec.errors import Place
    from tilec.ir.nodes import Kernel
    from tilec.lowering.lowered import LoweredKernel
    from tilec.lowering.passes.base import Pass
    from tilec.targets import Host, Target


class CpuBackend(Backend):
    """Blocks of a launch are tasks of a thread pool; one ELF object per variant, through LLVM."""

    name = device = "cpu"
    title = word = "CPU"
    example = 'cpu = ["x86-64-v3"]'
    on_host = scales_sums = True
    device_type = "kDLCPU"
    runtime = ""
    late_stages: ClassVar = {"tir": "tir_text", "source": "source", "llvm": "llvm_ir", "asm": "assembly"}
    identity = "tir"
    roads = ("microkernel", "vectors")
    without_devices = "build for the machines that you have, with host in [targets]"
    kinds = ("c", "cpu", "llvm", "native")

    # ---- facts ----

    def names(self) -> tuple[str, ...]:
        """The levels."""
        from tilec.targets import CPU_LEVELS

        return CPU_LEVELS

    def parse(self, name: str, features: list[str], place: Place | None) -> Target:
        """A level with features."""
        from tilec.targets import cpu_target

        return cpu_target(name, features, place)

    def may_run(self, code: Target, device: Target) -> bool:
        """A CPU has the features of its target and no more."""
        return not code.required_mask & ~device.required_mask

    def fits(self, target: Target, host: Host) -> bool:
        """A library is one file, of one architecture."""
        return target.arch == host.arch

    # ---- compiling ----

    def passes(self, target: Target) -> tuple[Pass, ...]:
        """The same for every level."""
        from tilec.backends.cpu.passes.order import CPU_PASSES

        return CPU_PASSES

    def lower_kernel(self, kernel: Kernel, target: Target) -> LoweredKernel:
        """A function per launch that runs a range of its blocks."""
        from tilec.backends.cpu.emit.entry import lower_kernel

        return lower_kernel(kernel, target)

    def generator(self) -> CodeGenerator:
        """LLVM, through TVM."""
        from tilec.backends.cpu.codegen import objects

        return objects

    def load(self) -> None:
        """Passes, emission and LLVM's part."""
        import tilec.backends.cpu.codegen.objects
        import tilec.backends.cpu.emit.entry
        import tilec.backends.cpu.math
        import tilec.backends.cpu.passes.order  # noqa: F401

    def source_suffix(self, text: str) -> str:
        """What C has no words for is LLVM IR."""
        return ".ll" if text.startswith(";") else ".c"

    # ---- devices ----

    def here(self) -> Target:
        """This CPU."""
        from tilec.targets import native_target

        return native_target()

    def devices(self) -> tuple[str, ...]:
        """This CPU, as a manifest names it, and the cores that this process may use."""
        return (f"{self.here().name}, {self.units(0)} cores",)

    def units(self, device: int) -> int:
        """The cores that this process may use."""
        from tilec.portable.cores import usable_cores

        return usable_cores()

    def spelled(self, arch: str, mcpu: str) -> Target:
        """By LLVM's name of a CPU."""
        from tilec.backends.cpu.spellings import target_named

        return target_named(mcpu)

    def ceilings(self, device: int, threads: int) -> Ceilings:
        """By a small C library."""
        from tilec.backends.cpu.probe import cpu_ceilings

        return cpu_ceilings(threads)

    def cache_bytes(self) -> int:
        """As the system says."""
        from tilec.backends.cpu.probe import last_cache_bytes

        return last_cache_bytes()

    def limits(self, target: Target, device: Mapping[str, Any], threads: int) -> Limits:
        """Guesses by clock, cores and width of vectors."""
        from tilec.backends.cpu.limits import cpu_limits

        return cpu_limits(target, device, threads)

    def runs_on(self, device: Mapping[str, Any], target: Target) -> bool:
        """This machine's CPU, whose features the target needs."""
        from tilec.targets import runs_here

        return "cores" in device and runs_here(target)
