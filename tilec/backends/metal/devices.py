"""The versions of Metal that tilec has code for: the table of facts of the family.

Sources: Apple's Metal Feature Set Tables (families Apple7 and Metal3), and the Metal Shading Language
Specification 3.
"""

from __future__ import annotations

from tilec.errors import Place
from tilec.targets import GpuLimits, Target, gpu_target, require_no_features

#: Of a block (threadgroup), on every device of the family.
SHARED_BYTES, THREADS = 32 * 1024, 1024
#: Buffers that a function takes.
BUFFERS = 31
#: Registers that rules count with, of a thread and of all threads of a block. Apple publishes neither: a
#: choice that leaves blocks of 1024 threads half as many each.
_REGISTERS, _FILE = 128, 64 * 1024
VERSIONS = ("metal3",)


def registers_of(target: Target, threads: int) -> int:
    """Those that a thread of a block of ``threads`` is taken to have."""
    return min(_REGISTERS, _FILE // threads)


def metal_target(name: str, features: list[str], place: Place | None) -> Target:
    """The target of one of `VERSIONS`, which have no features."""
    require_no_features(name, features, place)
    limits = GpuLimits(0, SHARED_BYTES, threads=THREADS)
    return gpu_target(name, "metal", "air64-apple-macosx13.0.0", (1, 0, 0), limits)
