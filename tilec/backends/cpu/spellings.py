"""CPUs as LLVM names them; what none of tilec's features says of them is not used."""

from __future__ import annotations

from tilec.errors import InputError
from tilec.targets import CPU_LEVELS, Target, native_target, parse_target

_NAMES = {
    "nehalem": "x86-64-v2",
    "haswell": "x86-64-v3",
    "skylake": "x86-64-v3",
    "znver1": "x86-64-v3",
    "znver2": "x86-64-v3",
    "znver3": "x86-64-v3",
    "skylake-avx512": "x86-64-v4",
    "cascadelake": "x86-64-v4+vnni",
    "icelake-server": "x86-64-v4+vnni",
    "cooperlake": "x86-64-v4+vnni+avx512bf16",
    "alderlake": "x86-64-v3+avxvnni",
    "sapphirerapids": "x86-64-v4+vnni+avx512bf16+amx",
    "emeraldrapids": "x86-64-v4+vnni+avx512bf16+amx",
    "graniterapids": "x86-64-v4+vnni+avx512bf16+amx",
    "znver4": "x86-64-v4+vnni+avx512bf16+zen4",
    "znver5": "x86-64-v4+vnni+avx512bf16+zen4",
    "neoverse-n1": "aarch64+dotprod",
    "neoverse-n2": "aarch64+dotprod+bf16+i8mm",
    "neoverse-v1": "aarch64+dotprod+bf16+i8mm",
    "neoverse-v2": "aarch64+dotprod+bf16+i8mm",
}


def target_named(mcpu: str) -> Target:
    """The target of a CPU as LLVM names it, this one where it has no name. Raises InputError for one that is
    not in the table."""
    if mcpu in ("", "native", "host", "generic"):
        return native_target()
    if mcpu in _NAMES:
        return parse_target(_NAMES[mcpu])
    if mcpu.startswith(CPU_LEVELS):
        return parse_target(mcpu)
    raise InputError(
        f"unknown CPU {mcpu!r}", remedy=f'write "native", {", ".join(CPU_LEVELS)}, or {", ".join(_NAMES)}'
    )
