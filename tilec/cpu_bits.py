"""What a processor has, a bit each, and how a program finds out: the only table of it.

The C runtime detects levels and features by `DETECTION`, `tilec.targets.native_target` by the same rows, so
that dispatch in a built library and the target of this machine never disagree.

Sources: x86-64 levels from the x86-64 psABI, section "Micro-Architecture Levels"; CPUID bits from the Intel
SDM volume 2A and AMD APM volume 3; HWCAP bits from Linux's arch/arm64/include/uapi/asm/hwcap.h,
names of sysctl from Apple's "Determining Instruction Set Characteristics", numbers of Windows from winnt.h.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilec.errors import EnvironmentError_

#: Where Linux lists what processors have.
CPUINFO = Path("/proc/cpuinfo")


class CpuBit(enum.IntEnum):
    """One bit per thing the runtime detects; the values are part of a built library, never renumbered."""

    X86_64_V2 = 0
    X86_64_V3 = 1
    X86_64_V4 = 2
    VNNI = 3
    AVX512BF16 = 4
    AVX512FP16 = 5
    AMX = 6
    AVXVNNI = 7
    ZEN4 = 8
    AARCH64 = 32
    DOTPROD = 33
    FP16 = 34
    BF16 = 35
    I8MM = 36

    @property
    def mask(self) -> int:
        """The bit in the 64-bit word that the runtime compares."""
        return 1 << self.value


@dataclass(frozen=True)
class CpuidBit:
    """Bit ``bit`` of ``register`` ("eax", "ebx", "ecx", "edx") after CPUID with ``leaf`` and ``subleaf``."""

    leaf: int
    subleaf: int
    register: str
    bit: int


@dataclass(frozen=True)
class HwcapBit:
    """Bit ``bit`` of ``getauxval(AT_HWCAP)`` (``word`` 1) or ``AT_HWCAP2`` (``word`` 2)."""

    word: int
    bit: int


@dataclass(frozen=True)
class Detection:
    """When `CpuBit` ``bit`` is present: all of ``tests`` hold, the OS saves the register state in ``xcr0``
    (a mask of XCR0, 0 where none is needed) and the bits in ``requires`` are present. ``flags`` are the same
    facts as names in /proc/cpuinfo. ``permission`` is the component of that state which a process has to ask
    Linux for, 0 where there is none. Where a program cannot ask the processor, other systems answer: macOS of
    the name ``sysctl``, Windows of the number ``windows``, for which winnt.h has names."""

    bit: CpuBit
    tests: tuple[CpuidBit | HwcapBit, ...]
    flags: tuple[str, ...]
    requires: tuple[CpuBit, ...] = ()
    xcr0: int = 0
    permission: int = 0
    sysctl: str = ""
    windows: int = 0

    @property
    def arch(self) -> str:
        """The architecture that has the bit: x86 has CPUID, aarch64 words of Linux."""
        return "x86_64" if isinstance(self.tests[0], CpuidBit) else "aarch64"


def _cpuid(leaf: int, register: str, *bits: int, subleaf: int = 0) -> tuple[CpuidBit, ...]:
    return tuple(CpuidBit(leaf, subleaf, register, bit) for bit in bits)


_EXTENDED, _SIZES = 0x80000001, 0x80000008
_XCR0_AVX, _XCR0_AVX512, _XCR0_TILES = 0x06, 0xE6, 0x60000
#: The component of XCR0 that holds tile registers (Linux, Documentation/arch/x86/xstate.rst).
_TILE_DATA = 18

#: In an order in which ``requires`` only looks back.
DETECTION: tuple[Detection, ...] = (
    Detection(
        CpuBit.X86_64_V2,
        _cpuid(1, "ecx", 0, 9, 13, 19, 20, 23) + _cpuid(_EXTENDED, "ecx", 0),
        ("pni", "ssse3", "cx16", "sse4_1", "sse4_2", "popcnt", "lahf_lm"),
    ),
    Detection(
        CpuBit.X86_64_V3,
        _cpuid(1, "ecx", 12, 22, 27, 28, 29) + _cpuid(7, "ebx", 3, 5, 8) + _cpuid(_EXTENDED, "ecx", 5),
        ("fma", "movbe", "avx", "f16c", "bmi1", "avx2", "bmi2", "abm"),
        requires=(CpuBit.X86_64_V2,),
        xcr0=_XCR0_AVX,
    ),
    Detection(
        CpuBit.X86_64_V4,
        _cpuid(7, "ebx", 16, 17, 28, 30, 31),
        ("avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl"),
        requires=(CpuBit.X86_64_V3,),
        xcr0=_XCR0_AVX512,
    ),
    Detection(CpuBit.VNNI, _cpuid(7, "ecx", 11), ("avx512_vnni",), (CpuBit.X86_64_V4,)),
    Detection(CpuBit.AVX512BF16, _cpuid(7, "eax", 5, subleaf=1), ("avx512_bf16",), (CpuBit.X86_64_V4,)),
    Detection(CpuBit.AVX512FP16, _cpuid(7, "edx", 23), ("avx512_fp16",), (CpuBit.X86_64_V4,)),
    Detection(
        CpuBit.AMX,
        _cpuid(7, "edx", 22, 24, 25),
        ("amx_bf16", "amx_tile", "amx_int8"),
        (CpuBit.X86_64_V4,),
        _XCR0_TILES,
        _TILE_DATA,
    ),
    Detection(CpuBit.AVXVNNI, _cpuid(7, "eax", 4, subleaf=1), ("avx_vnni",), (CpuBit.X86_64_V3,)),
    Detection(
        CpuBit.ZEN4,
        _cpuid(_SIZES, "ebx", 0) + _cpuid(7, "ecx", 1, 12, 14),
        ("clzero", "avx512vbmi", "avx512_bitalg", "avx512_vpopcntdq"),
        (CpuBit.AVX512BF16,),
    ),
    Detection(CpuBit.AARCH64, (HwcapBit(1, 1),), ("asimd",), sysctl="hw.optional.arm64", windows=19),
    Detection(
        CpuBit.DOTPROD,
        (HwcapBit(1, 20),),
        ("asimddp",),
        (CpuBit.AARCH64,),
        sysctl="hw.optional.arm.FEAT_DotProd",
        windows=43,
    ),
    Detection(
        CpuBit.FP16,
        (HwcapBit(1, 9), HwcapBit(1, 10)),
        ("fphp", "asimdhp"),
        (CpuBit.AARCH64,),
        sysctl="hw.optional.arm.FEAT_FP16",
        windows=67,
    ),
    Detection(
        CpuBit.BF16,
        (HwcapBit(2, 14),),
        ("bf16",),
        (CpuBit.AARCH64,),
        sysctl="hw.optional.arm.FEAT_BF16",
        windows=68,
    ),
    Detection(
        CpuBit.I8MM,
        (HwcapBit(2, 13),),
        ("i8mm",),
        (CpuBit.AARCH64,),
        sysctl="hw.optional.arm.FEAT_I8MM",
        windows=66,
    ),
)


def required_mask(bits: Sequence[CpuBit]) -> int:
    """``bits`` with everything that they require in turn, as a mask."""
    requires = {item.bit: item.requires for item in DETECTION}
    pending, needs = list(bits), 0
    while pending:
        bit = pending.pop()
        needs |= bit.mask
        pending.extend(requires[bit])
    return needs


def bits_of_flags(flags: frozenset[str]) -> set[CpuBit]:
    """What a processor with these flags of /proc/cpuinfo has."""
    present: set[CpuBit] = set()
    for item in DETECTION:
        if flags.issuperset(item.flags) and present.issuperset(item.requires):
            present.add(item.bit)
    return present


def cpu_flags(cpuinfo: Path) -> frozenset[str]:
    """The first processor's flags: "flags" on x86, "Features" on aarch64."""
    for line in cpuinfo.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    raise EnvironmentError_(f"{cpuinfo} lists no CPU flags", remedy="name a target with --target")
