"""Architectures, features, ordering, limits: the only table of what code is made for. `tilec.families` has
the families that they belong to; a family may have facts of its own.

A CPU target is ``level[+feature...]``: ``x86-64-v4+vnni+avx512bf16``. A CUDA target is ``sm_<n>[a]`` or
``compute_<n>``. `tilec.cpu_bits` has what a level or feature takes of a processor.
"""

from __future__ import annotations

import platform
import string
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilec.cpu_bits import CPUINFO, CpuBit, bits_of_flags, cpu_flags, required_mask
from tilec.errors import EnvironmentError_, InputError, Place
from tilec.families import families
from tilec.spelling import nearest
from tilec.systems import LINUX, SYSTEMS, System


@dataclass(frozen=True)
class _Level:
    """A base instruction set. ``order`` ranks the levels of one architecture; higher is tried first."""

    name: str
    arch: str
    order: int
    bit: CpuBit
    mcpu: str
    mattr: tuple[str, ...]
    vector_bits: int
    vector_registers: int
    has_fma: bool


@dataclass(frozen=True)
class _Feature:
    """An addition to the levels in ``levels``; ``mattr`` is LLVM's spelling, of each of its parts."""

    name: str
    levels: tuple[str, ...]
    bit: CpuBit
    mattr: tuple[str, ...]


_LEVELS = (
    _Level("x86-64-v2", "x86_64", 2, CpuBit.X86_64_V2, "x86-64-v2", (), 128, 16, False),
    _Level("x86-64-v3", "x86_64", 3, CpuBit.X86_64_V3, "x86-64-v3", (), 256, 16, True),
    _Level("x86-64-v4", "x86_64", 4, CpuBit.X86_64_V4, "x86-64-v4", (), 512, 32, True),
    _Level("aarch64", "aarch64", 1, CpuBit.AARCH64, "generic", ("+neon",), 128, 32, True),
)
_FEATURES = (
    _Feature("avxvnni", ("x86-64-v3",), CpuBit.AVXVNNI, ("+avxvnni",)),
    _Feature("vnni", ("x86-64-v4",), CpuBit.VNNI, ("+avx512vnni",)),
    _Feature("avx512bf16", ("x86-64-v4",), CpuBit.AVX512BF16, ("+avx512bf16",)),
    _Feature("avx512fp16", ("x86-64-v4",), CpuBit.AVX512FP16, ("+avx512fp16",)),
    # AMD's processors from Zen 4 on, told by CLZERO, which no other maker's have. They start `vdpbf16ps` as
    # often as a multiply-add, Intel's half as often or less, and count the bits of numbers of any width.
    _Feature("zen4", ("x86-64-v4",), CpuBit.ZEN4, ("+avx512vpopcntdq", "+avx512bitalg", "+avx512vbmi")),
    _Feature("amx", ("x86-64-v4",), CpuBit.AMX, ("+amx-tile", "+amx-bf16", "+amx-int8")),
    _Feature("dotprod", ("aarch64",), CpuBit.DOTPROD, ("+dotprod",)),
    _Feature("fp16", ("aarch64",), CpuBit.FP16, ("+fullfp16",)),
    _Feature("bf16", ("aarch64",), CpuBit.BF16, ("+bf16",)),
    _Feature("i8mm", ("aarch64",), CpuBit.I8MM, ("+i8mm",)),
)
#: Features of processors that tilec has no code for, and why.
_REFUSED = dict.fromkeys(
    ("sve", "sve2"), "its vectors are as long as the machine has them; tilec's are 128 bits on aarch64"
)
_LEVEL_BY_NAME = {level.name: level for level in _LEVELS}
_FEATURE_BY_NAME = {feature.name: feature for feature in _FEATURES}


@dataclass(frozen=True)
class GpuLimits:
    """What one block may have on every device that runs code of a target for GPUs.

    ``capability`` is 10 * major + minor of a CUDA target, 0 for GPUs of others: they have none of what comes
    with one. ``is_ptx``: the driver compiles it, for any device of
    that capability or above. ``exact``: it runs on that capability alone; other cubins run on devices of the
    same major and the same or a higher minor. ``of_family``: it may use what all of these have and later
    majors may not; what is ``exact`` may use all that there is. ``shared_bytes`` is the most shared memory of
    a block that opts in, ``cluster_blocks`` the most blocks of a cluster that every device takes."""

    capability: int
    shared_bytes: int
    is_ptx: bool = False
    exact: bool = False
    of_family: bool = False
    cluster_blocks: int = 1
    threads: int = 1024

    def runs_on(self, capability: int) -> bool:
        """Whether a device of a compute capability (10 * major + minor) runs the code."""
        if self.exact or self.capability > capability:
            return self.capability == capability
        return self.is_ptx or self.capability // 10 == capability // 10


#: 32-bit registers of one multiprocessor, the most of one thread, and how many a warp's threads get at once;
#: bytes of shared memory that the system keeps of every block. The same on every GPU in the table (CUDA C++
#: Programming Guide, "Compute Capabilities").
REGISTER_FILE, MOST_REGISTERS, _REGISTER_UNIT, SYSTEM_SHARED_BYTES = 65536, 255, 8, 1024
#: Bytes of a sector of the L2 cache, which moves no less, and of a line of it.
SECTOR, LINE = 32, 128


def registers_of_a_thread(threads: int) -> int:
    """The most that each thread of a block of ``threads`` may have."""
    return min(MOST_REGISTERS, REGISTER_FILE // threads // _REGISTER_UNIT * _REGISTER_UNIT)


#: Shared memory per block from the CUDA C++ Programming Guide, "Compute Capabilities". What PTX may use is
#: the least of the devices that run it.
_KIB = 1024
_LEAST_SHARED, _CLUSTER = 99 * _KIB, 8
#: Capabilities with three names each: "sm_100" for all that later minors have, too, "sm_100f" for what its
#: family has, "sm_100a" for all that it has itself (CUDA C++ Programming Guide, "Feature Set Compiler
#: Targets").
_THREEFOLD = {
    121: _LEAST_SHARED,
    120: _LEAST_SHARED,
    110: 227 * _KIB,
    103: 227 * _KIB,
    100: 227 * _KIB,
}
_GPUS = {
    **{
        f"sm_{capability}{suffix}": GpuLimits(
            capability, shared, exact=suffix == "a", of_family=suffix == "f", cluster_blocks=_CLUSTER
        )
        for capability, shared in _THREEFOLD.items()
        for suffix in ("a", "f", "")
    },
    "sm_90a": GpuLimits(90, 227 * _KIB, exact=True, cluster_blocks=_CLUSTER),
    "sm_89": GpuLimits(89, 99 * _KIB),
    "sm_86": GpuLimits(86, 99 * _KIB),
    "sm_80": GpuLimits(80, 163 * _KIB),
    **{
        f"compute_{capability}": GpuLimits(capability, _LEAST_SHARED, is_ptx=True, cluster_blocks=_CLUSTER)
        for capability in (120, 100, 90)
    },
    "compute_80": GpuLimits(80, _LEAST_SHARED, is_ptx=True),
}

CPU_LEVELS: tuple[str, ...] = tuple(_LEVEL_BY_NAME)
CUDA_TARGETS: tuple[str, ...] = tuple(_GPUS)
#: The features that CPU targets may name, and what each is found by.
FEATURE_BITS: Mapping[str, CpuBit] = {feature.name: feature.bit for feature in _FEATURES}

#: Processors of hosts.
ARCHS: tuple[str, ...] = ("x86_64", "aarch64")


@dataclass(frozen=True)
class Target:
    """One instruction set that variants are compiled for.

    ``name`` is canonical (features in table order), ``family`` the name of its family. ``vector_bits`` is the
    width of a vector register and ``vector_registers`` how many there are; both 0 for GPUs. ``bits`` are what
    the machine must have. ``rank`` orders candidates of one architecture: larger is tried first. ``gpu`` is
    set for GPUs."""

    name: str
    family: str
    arch: str
    level: str
    features: tuple[str, ...]
    vector_bits: int
    vector_registers: int
    has_fma: bool
    triple: str
    mcpu: str
    mattr: tuple[str, ...]
    bits: tuple[CpuBit, ...]
    rank: tuple[int, int, int]
    gpu: GpuLimits | None = None

    @property
    def is_cpu(self) -> bool:
        """Whether this is a CPU target: for kernel files. tilec itself asks the family."""
        return self.family == "cpu"

    @property
    def required_mask(self) -> int:
        """``bits`` with everything that they require in turn, as the mask that dispatch compares."""
        return required_mask(self.bits)

    @property
    def has_lane_products(self) -> bool:
        """Whether an instruction multiplies a vector by one lane of another (aarch64's "by element")."""
        return self.arch == "aarch64"

    @property
    def has_half_conversions(self) -> bool:
        """Whether an instruction makes float32 of float16: x86-64 has it where it has multiply-adds."""
        return self.has_fma

    @property
    def has_half_products(self) -> bool:
        """Whether an instruction multiplies float16 and adds to float16."""
        return self.has("fp16") or self.has("avx512fp16")

    def on(self, host: Host) -> Target:
        """This target on ``host``, whose system decides calling convention and format of CPU code."""
        return replace(self, triple=host.code_triple) if self.is_cpu else self

    def lanes(self, bits: int) -> int:
        """How many elements of ``bits`` bits one vector register holds."""
        return self.vector_bits // bits

    def has(self, feature: str) -> bool:
        """Whether the target names ``feature``."""
        return feature in self.features


def parse_target(text: str, *, place: Place | None = None, wanted: str = "") -> Target:
    """The target that ``text`` names; InputError with the nearest valid name otherwise, of the family
    ``wanted`` where one is."""
    name, *features = text.strip().split("+")
    family = next((each for each in families() if name in each.names()), None)
    if family is None:
        asked = [each for each in families() if wanted in ("", each.name)]
        every = tuple(known for each in asked for known in each.names())
        raise _unknown("target", name, _of_kind(name, every) or every, place)
    return family.parse(name, features, place)


def cpu_target(name: str, names: list[str], place: Place | None) -> Target:
    """The target of one of `CPU_LEVELS` with these features."""
    level = _LEVEL_BY_NAME[name]
    allowed = tuple(feature.name for feature in _FEATURES if level.name in feature.levels)
    for name in names:
        if name in _REFUSED and level.arch == "aarch64":
            raise _refused(name, level, place)
        if name not in _FEATURE_BY_NAME:
            raise _unknown("CPU feature", name, allowed, place)
        if name not in allowed:
            raise _misplaced(_FEATURE_BY_NAME[name], level, place)
    features = tuple(feature for feature in _FEATURES if feature.name in names)
    bits = (level.bit, *(feature.bit for feature in features))
    return Target(
        name="+".join((level.name, *(feature.name for feature in features))),
        family="cpu",
        arch=level.arch,
        level=level.name,
        features=tuple(feature.name for feature in features),
        vector_bits=level.vector_bits,
        vector_registers=level.vector_registers,
        has_fma=level.has_fma,
        triple=LINUX.llvm.format(arch=level.arch),
        mcpu=level.mcpu,
        mattr=(*level.mattr, *(part for feature in features for part in feature.mattr)),
        bits=bits,
        rank=(level.order, *_feature_rank(features)),
    )


def cpu_names(arch: str) -> list[tuple[str, CpuBit, tuple[CpuBit, ...]]]:
    """What names of an architecture's CPU targets are made of, with the bit of each and those of the levels
    that it is an addition to; a level has none, and comes first."""
    own = {level.name: level.bit for level in _LEVELS if level.arch == arch}
    levels: list[tuple[str, CpuBit, tuple[CpuBit, ...]]] = [(name, bit, ()) for name, bit in own.items()]
    features = [each for each in _FEATURES if not own.keys().isdisjoint(each.levels)]
    return levels + [(each.name, each.bit, tuple(own[name] for name in each.levels)) for each in features]


def _feature_rank(features: tuple[_Feature, ...]) -> tuple[int, int]:
    """A matrix unit before any number of vector instructions, then more features, then later ones."""
    unit = sum(len(_FEATURES) for feature in features if feature.bit is CpuBit.AMX)
    return unit + len(features), sum(feature.bit.mask for feature in features)


def cuda_target(name: str, features: list[str], place: Place | None) -> Target:
    """The target of one of `CUDA_TARGETS`, which have no features."""
    require_no_features(name, features, place)
    return gpu_target(name, "cuda", "nvptx64-nvidia-cuda", _cuda_rank(_GPUS[name]), _GPUS[name])


def require_no_features(name: str, features: Sequence[str], place: Place | None) -> None:
    """Raises InputError for features of a target that has none."""
    if features:
        raise InputError(
            f"target {name!r} takes no features, got {'+'.join(features)!r}",
            place=place,
            remedy=f"write {name!r}",
        )


def gpu_target(name: str, family: str, triple: str, rank: tuple[int, int, int], gpu: GpuLimits) -> Target:
    """A GPU of a family."""
    return Target(
        name=name,
        family=family,
        arch=family,
        level=name,
        features=(),
        vector_bits=0,
        vector_registers=0,
        has_fma=True,
        triple=triple,
        mcpu=name,
        mattr=(),
        bits=(),
        rank=rank,
        gpu=gpu,
    )


def _cuda_rank(gpu: GpuLimits) -> tuple[int, int, int]:
    """Cubins before PTX, newer first, of one capability those that use more of it."""
    return (0 if gpu.is_ptx else 1, gpu.capability, 2 * gpu.exact + gpu.of_family)


def _unknown(kind: str, name: str, known: tuple[str, ...], place: Place | None) -> InputError:
    near = nearest(name, known)
    hint = f"did you mean {near!r}? " if near else ""
    return InputError(
        f"unknown {kind} {name!r}",
        place=place,
        remedy=f"{hint}known here: {', '.join(known) or 'none'}",
    )


def _of_kind(name: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """The names that begin with the same letters: `gfx908` has others than `sm_75`."""
    letters = name[: len(name) - len(name.lstrip(string.ascii_lowercase))]
    return tuple(each for each in known if letters and each.startswith(letters))


def _misplaced(feature: _Feature, level: _Level, place: Place | None) -> InputError:
    return InputError(
        f"target {level.name} cannot have the feature {feature.name!r}",
        place=place,
        why=f"{feature.name} is an addition to {', '.join(feature.levels)}",
        remedy=f"write {feature.levels[0]}+{feature.name}",
    )


def _refused(name: str, level: _Level, place: Place | None) -> InputError:
    return InputError(
        f"tilec compiles no code for the feature {name!r}",
        place=place,
        why=_REFUSED[name],
        remedy=f"leave it out: such a machine runs {level.name} with its other features",
    )


@dataclass(frozen=True)
class Host:
    """What a library runs on: ``arch`` is "x86_64" or "aarch64"; ``version`` the oldest one of its system
    that it needs (of glibc on Linux), empty where the system has none."""

    arch: str
    version: str
    system: System = LINUX

    @property
    def triple(self) -> str:
        """The spelling of the manifest: "x86_64-linux-gnu.2.17", "aarch64-macos.12", "x86_64-windows"."""
        return "-".join((self.arch, ".".join(filter(None, (self.system.spelling, self.version)))))

    @property
    def folder(self) -> str:
        """What its library's folder is called beside those of other hosts: "aarch64-macos"."""
        return f"{self.arch}-{self.system.name}"

    @property
    def linker_triple(self) -> str:
        """The spelling of ``zig cc -target``."""
        return self.system.zig.format(arch=self.arch, version=self.version)

    @property
    def code_triple(self) -> str:
        """The spelling of LLVM, which decides calling convention and format of machine code."""
        return self.system.llvm.format(arch=self.arch, version=self.version)


def parse_host(text: str, *, place: Place | None = None) -> Host:
    """``<arch>-linux-gnu[.<glibc>]``, ``<arch>-macos[.<version>]`` or ``<arch>-windows``; without a version
    the oldest one that can be asked for."""
    arch, _, rest = text.strip().partition("-")
    if arch not in ARCHS:
        raise _unknown("host architecture", arch, ARCHS, place)
    name, dot, version = rest.partition(".")
    system = next((each for each in SYSTEMS if each.spelling == name), None)
    if system is None or (dot and version not in system.versions):
        raise InputError(
            f"host {text!r} cannot be used",
            place=place,
            why=f"libraries are built for {'; '.join(map(_hosts_of, SYSTEMS))}",
            remedy=f"write {arch}-{(system or LINUX).example}",
        )
    return Host(arch, version if dot else system.default, system)


def _hosts_of(system: System) -> str:
    if not system.versions:
        return system.title
    return f"{system.title} with {system.versioned} from {system.versions[0]} to {system.versions[-1]}"


def native_host() -> Host:
    """The host that describes this machine, with the default glibc floor.

    Raises EnvironmentError_ (exit code 3) on anything but 64-bit Linux on x86-64 or aarch64."""
    arch = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}.get(
        platform.machine().lower()
    )
    if arch is None or platform.system() != "Linux" or sys.maxsize < 2**32:
        raise EnvironmentError_(
            f"this machine ({platform.system()} on {platform.machine()}) is no host of tilec",
            why="tilec builds on 64-bit Linux with glibc, on x86-64 and aarch64",
            remedy="set [targets] host in the manifest to cross-build",
        )
    return Host(arch, LINUX.default)


def native_target() -> Target:
    """The best CPU target of this machine: the highest level, with every feature that it has."""
    return target_of_flags(native_host().arch, cpu_flags(CPUINFO))


def target_of_flags(arch: str, flags: frozenset[str]) -> Target:
    """The best target of ``arch`` whose detection is met by these /proc/cpuinfo flags."""
    present = bits_of_flags(flags)
    levels = [level for level in _LEVELS if level.arch == arch and level.bit in present]
    if not levels:
        raise EnvironmentError_(
            f"this CPU is below the lowest {arch} level that tilec compiles for",
            remedy="build on this machine with explicit --target, run elsewhere",
        )
    best = max(levels, key=lambda level: level.order)
    features = [item.name for item in _FEATURES if best.name in item.levels and item.bit in present]
    return parse_target("+".join((best.name, *features)))


def runs_here(target: Target, cpuinfo: Path = CPUINFO) -> bool:
    """Whether this machine executes code of ``target``."""
    return target.family == "cpu" and set(target.bits) <= bits_of_flags(cpu_flags(cpuinfo))
