"""What a cubin itself says of its kernels: registers, stack and shared memory.

A cubin is an ELF file whose section ``.nv.info`` holds records: a format byte, an attribute byte, a 16-bit
length, and here a symbol's index and a number (`cuobjdump --dump-elf` shows them as EIATTR_REGCOUNT and
EIATTR_FRAME_SIZE). The section ``.nv.shared.<kernel>`` is as large as the kernel's static shared memory; from
sm_90 on it begins with what the hardware reserves for every block.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tilec.backends.cuda.codegen.ptxas_report import KernelReport
from tilec.codegen.elf import named_sections, symbol_names
from tilec.targets import SYSTEM_SHARED_BYTES

_FRAME_SIZE, _REGISTERS = 0x11, 0x2F
#: The format of records with a length and a value of that length; those of others have no value behind them.
_SIZED = 4
_RESERVED = ".nv.shared.reserved.0"


def read_cubin(code: bytes) -> dict[str, KernelReport]:
    """What the cubin ``code`` says of each kernel in it, by name: all but spills. Nothing for other bytes."""
    if not code.startswith(b"\x7fELF"):
        return {}
    sections = named_sections(code)
    counts = dict(_attributes(sections.get(".nv.info", b""), symbol_names(code)))
    reserved = SYSTEM_SHARED_BYTES if _RESERVED in sections else 0
    kernels = [name.removeprefix(".text.") for name in sections if name.startswith(".text.")]
    return {
        name: KernelReport(
            registers=counts[name, _REGISTERS],
            stack=counts.get((name, _FRAME_SIZE), 0),
            spills=None,
            static_shared=max(0, len(sections.get(f".nv.shared.{name}", b"")) - reserved),
        )
        for name in kernels
        if (name, _REGISTERS) in counts
    }


def _attributes(records: bytes, symbols: tuple[str, ...]) -> Iterator[tuple[tuple[str, int], int]]:
    """((kernel, attribute), number) of the records with a symbol and a number."""
    at = 0
    while at + 4 <= len(records):
        kind, attribute, size = struct.unpack_from("<BBH", records, at)
        at += 4
        if kind != _SIZED:
            continue
        if attribute in (_FRAME_SIZE, _REGISTERS):
            symbol, number = struct.unpack_from("<II", records, at)
            yield (symbols[symbol], attribute), number
        at += size
