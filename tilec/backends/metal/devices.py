"""The versions of Metal that tilec has code for: the table of facts of the family.

Sources: Apple's Metal Feature Set Tables (families Apple7 and Metal3), and the Metal Shading Language
Specification 3.
"""

from __future__ import annotations

from tilec.errors import InputError, Place
from tilec.targets import GpuLimits, Target

#: Of a block (threadgroup), on every device of the family.
SHARED_BYTES, THREADS = 32 * 1024, 1024
#: Buffers that a function takes.
BUFFERS = 31
VERSIONS = ("metal3",)


def metal_target(name: str, features: list[str], place: Place | None) -> Target:
    """The target of one of `VERSIONS`, which have no features."""
    if features:
        raise InputError(
            f"target {name!r} takes no features, got {'+'.join(features)!r}",
            place=place,
            remedy=f"write {name!r}",
        )
    return Target(
        name=name,
        family="metal",
        arch="metal",
        level=name,
        features=(),
        vector_bits=0,
        vector_registers=0,
        has_fma=True,
        triple="air64-apple-macosx13.0.0",
        mcpu=name,
        mattr=(),
        bits=(),
        rank=(1, 0, 0),
        gpu=GpuLimits(0, SHARED_BYTES, threads=THREADS),
    )
