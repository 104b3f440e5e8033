"""Names, types and pointers of Metal's language."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain, count

from tilec.errors import UnsupportedError
from tilec.reserved import C_WORDS

#: The type of a dtype's elements in memory: bfloat16 and 8-bit floats are their bits.
TYPES = {
    "bool": "bool", "int8": "char", "uint8": "uchar", "int16": "short", "uint16": "ushort", "int32": "int",
    "uint32": "uint", "int64": "long", "uint64": "ulong", "float16": "half", "float32": "float",
    "bfloat16": "ushort", "float8_e4m3fn": "uchar", "float8_e5m2": "uchar",
}  # fmt: skip
ATOMICS = "Metal's atomics are of 32 bits"
OF_AUTHOR = "it is CUDA C++ of its author"
DEVICE, THREADGROUP, THREAD = "device", "threadgroup", "thread"
#: Words of Metal's language beside those of C and C++, functions that are called by plain names, and what
#: functions have beside their own.
_RESERVED = C_WORDS | frozenset(
    """
    bfloat constant device fragment half kernel mesh metal object object_data ray_data thread threadgroup
    threadgroup_imageblock uchar uint ulong ushort vertex
    abs as_type fabs fma fmax fmin fmod isnan max min precise select
    given here tilec_grid tilec_block tilec_thread tilec_lane
    INFINITY NAN NULL MAXFLOAT MAXHALF HUGE_VALF HUGE_VALH
    """.split()
)
#: Constants of Metal's library, which are macros: ``M_PI_F``, ``FLT_MAX``.
_CONSTANTS = re.compile(r"M_\w+_[FH]|(FLT|HALF|S?CHAR|UCHAR|U?SHRT|U?INT|U?LONG)_[A-Z0-9_]+")


@dataclass(frozen=True)
class Pointer:
    """An address: ``text``, of elements of ``dtype`` in an address space."""

    text: str
    space: str
    dtype: str


class Names:
    """Names of one function, each given once."""

    def __init__(self) -> None:
        self._taken = set(_RESERVED)

    def fresh(self, name: str) -> str:
        """``name``, or one like it."""
        name = re.sub(r"\W", "_", name)
        name = f"{name}_" if _CONSTANTS.fullmatch(name) else name
        numbered = (f"{name}_{number}" for number in count(1))
        found = next(each for each in chain([name], numbered) if each not in self._taken)
        self._taken.add(found)
        return found


def type_of(dtype: str) -> str:
    """What Metal calls a dtype. UnsupportedError for what it has not."""
    if dtype in TYPES:
        return TYPES[dtype]
    raise refused(dtype, "Metal has no such type", "use another type")


def refused(
    what: str,
    why: str = "Metal has nothing that tilec makes it of",
    instead: str = "write it in other operations",
) -> UnsupportedError:
    """The error for what Metal's language has no words for."""
    return UnsupportedError(
        f"{what} on Apple GPUs",
        why=why,
        remedy=f"leave the target out of the kernel's `targets`, or {instead}",
    )
