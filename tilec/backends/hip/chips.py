"""AMD GPUs that tilec has code for, and what each is: the table of facts of the family.

Sources: AMD's instruction set architecture documents of MI200, MI300 (CDNA2 and 3), RDNA3, RDNA3.5 and RDNA4;
LLVM's "User Guide for AMDGPU Backend", which has the processors and the shared memory (LDS) of each.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilec.errors import Place
from tilec.targets import GpuLimits, Target, gpu_target, require_no_features

#: Of a block, on every chip in the table.
_THREADS = 1024


@dataclass(frozen=True)
class Chip:
    """``lanes`` run together (a wave). ``shared_bytes``: LDS of a block. ``products``: the instructions that
    multiply tiles, "mfma" of a wave of 64 with the generation of CDNA that has them, or "wmma" of one of 32
    with that of RDNA. ``registers``: 32-bit ones that a thread may have, with accumulation registers where
    they are apart. ``lane_bytes``: what a lane may copy from global to shared memory at once without
    registers, most first (loads with LDS in AMD's documents of MI200 and MI300; 16 bytes: LLVM's gfx950)."""

    name: str
    lanes: int
    shared_bytes: int
    products: str
    registers: int
    lane_bytes: tuple[int, ...] = ()

    @property
    def has_few_registers(self) -> bool:
        """Whether addresses of the elements of a loop would fill them."""
        return self.registers <= 256


_KIB = 1024
CHIPS = {
    chip.name: chip
    for chip in (
        Chip("gfx950", 64, 160 * _KIB, "mfma4", 512, (16, 4)),
        Chip("gfx942", 64, 64 * _KIB, "mfma3", 512, (4,)),
        Chip("gfx90a", 64, 64 * _KIB, "mfma2", 512, (4,)),
        Chip("gfx1201", 32, 64 * _KIB, "wmma12", 256),
        Chip("gfx1200", 32, 64 * _KIB, "wmma12", 256),
        Chip("gfx1151", 32, 64 * _KIB, "wmma11", 256),
        Chip("gfx1100", 32, 64 * _KIB, "wmma11", 256),
    )
}
#: Registers of a compute unit: of four SIMDs, each of 512 for 64 lanes or of at least 1024 for 32 (LLVM's
#: AMDGPU backend, `getTotalNumVGPRs`).
_FILE = 4 * 512 * 64
#: By the lanes of a wave, the registers of a thread beside accumulation registers: of 256 (AMD's document of
#: MI300) 32 fewer, since with all of them clang moved some of causal attention in bfloat16 to accumulation
#: registers.
_OWN = {64: 256 - 32}
_ORDER = {name: -number for number, name in enumerate(CHIPS)}


def chip_of(target: Target) -> Chip:
    """The chip that a target stands for."""
    return CHIPS[target.name]


def registers_of(target: Target, threads: int) -> int:
    """Those that rules count with for a thread of a block of ``threads``, accumulation registers left out."""
    chip = chip_of(target)
    return min(_OWN.get(chip.lanes, chip.registers), _FILE // threads)


def hip_target(name: str, features: list[str], place: Place | None) -> Target:
    """The target of one of `CHIPS`, which have no features."""
    require_no_features(name, features, place)
    limits = GpuLimits(0, CHIPS[name].shared_bytes, threads=_THREADS)
    return gpu_target(name, "hip", "amdgcn-amd-amdhsa", (1, _ORDER[name], 0), limits)
