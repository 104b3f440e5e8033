"""What a family of targets is to the compiler: passes, lowering, code generator, devices.

`tilec.families.Family` has its facts, `tilec.package.family.PackageFamily` what a package holds of it; this
is the rest. A family is one object of a class like `tilec.backends.cpu.backend.CpuBackend`, light to import:
what does the work is imported by the methods. To add one, write its folder, a C file where the runtime has no
way to its devices yet, and register it in `tilec.backends`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from tilec.families import families, family_at, family_of
from tilec.package.family import PackageFamily

if TYPE_CHECKING:
    from tilec.backends.ceilings import Ceilings
    from tilec.backends.limits import Limits
    from tilec.codegen.image import Image
    from tilec.ir.nodes import Kernel
    from tilec.lowering.lowered import LoweredKernel
    from tilec.lowering.passes.base import Pass
    from tilec.targets import Target


class CodeGenerator(Protocol):
    """What the module of a family offers that makes its code, beside a function for each late stage."""

    def compile_kernel(self, lowered: LoweredKernel, target: Target, symbol_prefix: str) -> Image:
        """The machine code of one variant; launch i is the symbol ``<symbol_prefix>_<i>``."""


class Backend(PackageFamily):
    """A family with the way from tile IR to its machine code.

    ``kinds``: what TVM and frameworks call the family; ``aliases``: other names of its targets.
    ``late_stages``: stages behind the passes, in order, to the function of the code generator that gives the
    text of all launches. ``identity``: the stage whose text says all of what the code generator gets.
    ``roads``: those of `tilec.ir.roads` that mean something to its targets. ``emulated``: `tilec.emulate`
    runs its code. ``rounds_products``: float32 operands of T.gemm lose bits. ``scales_sums``: integers that
    become floats of 16 bits for T.gemm may be multiplied as they are, their scales going to sums.
    ``listings``: what else of its machine code people can read, "PTX" and "SASS". ``compile_seconds``: of a
    usual variant. ``known_rates``: `limits` is a bound that measurements can be held against.
    ``without_devices``: what people can do on a machine that has none."""

    kinds: tuple[str, ...] = ()
    aliases: ClassVar[Mapping[str, str]] = {}
    late_stages: ClassVar[Mapping[str, str]]
    identity: str
    roads: tuple[str, ...]
    emulated: bool = False
    rounds_products: bool = False
    scales_sums: bool = False
    listings: tuple[str, ...] = ()
    compile_seconds: float = 0.5
    known_rates: bool = False
    without_devices: str = ""

    @abstractmethod
    def passes(self, target: Target) -> tuple[Pass, ...]:
        """From the tile IR of authors to the form that `lower_kernel` reads."""

    def refuse(self, kernel: Kernel, target: Target) -> None:
        """UnsupportedError, at its line, for a statement of tile IR that no device of ``target`` carries out;
        `check` asks it, and lowering before the first pass."""

    @abstractmethod
    def lower_kernel(self, kernel: Kernel, target: Target) -> LoweredKernel:
        """One function for each launch of a kernel that all passes have run over."""

    @abstractmethod
    def generator(self) -> CodeGenerator:
        """The module that makes machine code."""

    def load(self) -> None:
        """Imports what makes its code, which the methods do otherwise when they are called: once for all
        processes that are forked from this one."""

    def text(self, stage: str, lowered: LoweredKernel, target: Target, symbol_prefix: str) -> str:
        """The code of all launches after one of `late_stages`."""
        made: str = getattr(self.generator(), self.late_stages[stage])(lowered, target, symbol_prefix)
        return made

    def device_functions(self, lowered: LoweredKernel, target: Target, symbol_prefix: str) -> list[Any]:
        """The functions of all launches as the code generator gets them, which `tilec.emulate` runs; of
        families that are ``emulated``."""
        generator: Any = self.generator()
        made: list[Any] = generator.device_functions(lowered, target, symbol_prefix)
        return made

    @abstractmethod
    def source_suffix(self, text: str) -> str:
        """Of a file with the text of the stage "source"."""

    def compiler(self) -> str:
        """Name and version of what makes its code. Raises EnvironmentError_ where a program that every
        variant needs is missing."""
        from tilec.cache import installed_version

        return f"tvm {installed_version('apache-tvm')}"

    def compiler_stamp(self) -> list[str]:
        """What settings say about its compiler, for the keys of the cache."""
        return []

    def shared_bytes(self, target: Target) -> int | None:
        """Bytes of shared memory of a block at most; None where nothing limits them."""
        return None

    def target_with(self, road: str, target: Target) -> str | None:
        """The name of the target that has a road that ``target`` has not; None where that has it, too."""
        return None

    def ceilings(self, device: int, threads: int) -> Ceilings | None:
        """What a device of this machine reaches at most, measured; None where nothing measures it.
        ``threads``: of its own cores."""
        return None

    def cache_bytes(self) -> int:
        """At least what the largest cache in front of the memory of a device holds."""
        raise self._without_figures()

    def here(self) -> Target | None:
        """The best target of the first device that this machine has; None where it has none."""
        return None

    def devices(self) -> tuple[str, ...]:
        """What this machine has to run its code on, in words for people."""
        return ()

    def units(self, device: int) -> int:
        """Multiprocessors, or cores, of a device of this machine."""
        return 1

    def spelled(self, arch: str, mcpu: str) -> Target:
        """The target of what stands behind one of `kinds`, each empty where it does not. InputError for no
        target, EnvironmentError_ where the device at hand is meant and there is none."""
        from tilec.targets import parse_target

        return parse_target(self.aliases.get(arch, arch))

    def tvm_arch(self, arch: str) -> str:
        """``arch`` of a TVM target; empty where it says nothing."""
        return arch

    def limits(self, target: Target, device: Mapping[str, Any], threads: int) -> Limits:
        """What a device does at most; without facts, a usual one. ``threads``: of a CPU, 0 for all."""
        raise self._without_figures()

    def runs_on(self, device: Mapping[str, Any], target: Target) -> bool:
        """Whether a device, as `tilec.portable.devices.base.Device.facts` says, runs code of a target: by
        default the one that it names under "arch"."""
        return bool(device.get("arch") == target.name)

    def _without_figures(self) -> Exception:
        from tilec.errors import UnsupportedError

        return UnsupportedError(f"tuning and measuring for {self.title}", remedy="build, call and verify it")


def backend_of(target: Target) -> Backend:
    """The backend of a target."""
    return cast("Backend", family_of(target))


def limits_of(target: Target, facts: Mapping[str, Any] | None = None, threads: int = 0) -> Limits:
    """The limits of a device with code of ``target``. ``facts``: what `tilec.portable.devices` say of it,
    None for a usual device; ``threads``: of a CPU, 0 for all."""
    return backend_of(target).limits(target, facts or {}, threads)


def backend_at(device: str) -> Backend:
    """That of `tilec.families.family_at`."""
    return cast("Backend", family_at(device))


def backends() -> tuple[Backend, ...]:
    """All of them."""
    return tuple(cast("Backend", each) for each in families())
