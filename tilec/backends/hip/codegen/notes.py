"""What a code object says of its kernels: the note NT_AMDGPU_METADATA, a map in MessagePack (LLVM, "User
Guide for AMDGPU Backend", "Code Object V5 Metadata")."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tilec.backends.cuda.codegen.ptxas_report import KernelReport
from tilec.codegen.elf import named_sections
from tilec.ir.roads import Loss

_NOTE, _HEAD = 32, struct.Struct("<III")
_WORD = 4


@dataclass(frozen=True)
class KernelNote:
    """Of one kernel: registers of a thread (``registers``, with accumulation registers), ``scalars`` of a
    wave, bytes of LDS, of scratch of a thread and of its registers that are spilled there, ``lanes`` of a
    wave, ``threads`` of a block at most, its arguments as (offset, bytes). Scalars that find no register lie
    in lanes of vector registers and take no memory (LLVM, "User Guide for AMDGPU Backend")."""

    registers: int
    scalars: int
    shared: int
    scratch: int
    spills: int
    lanes: int
    threads: int
    kernarg_bytes: int
    arguments: tuple[tuple[int, int], ...]

    def losses(self) -> Iterator[tuple[str, Loss]]:
        """What costs time, as `KernelReport.losses`."""
        return KernelReport(self.registers, self.scratch, self.spills, self.shared).losses()


def read_notes(code: bytes) -> dict[str, KernelNote]:
    """The notes of a code object by kernel."""
    import msgpack

    found = msgpack.unpackb(_metadata(named_sections(code)[".note"]))
    return {kernel[".name"]: _note(kernel) for kernel in found["amdhsa.kernels"]}


def _metadata(section: bytes) -> bytes:
    """The content of the note of `_NOTE`."""
    at = 0
    while at < len(section):
        names, size, kind = _HEAD.unpack_from(section, at)
        start = at + _HEAD.size + names + -names % _WORD
        if kind == _NOTE:
            return section[start : start + size]
        at = start + size + -size % _WORD
    return b"\x80"


def _note(kernel: dict[str, Any]) -> KernelNote:
    return KernelNote(
        registers=kernel[".vgpr_count"],
        scalars=kernel[".sgpr_count"],
        shared=kernel[".group_segment_fixed_size"],
        scratch=kernel[".private_segment_fixed_size"],
        spills=_WORD * kernel.get(".vgpr_spill_count", 0),
        lanes=kernel[".wavefront_size"],
        threads=kernel[".max_flat_workgroup_size"],
        kernarg_bytes=kernel[".kernarg_segment_size"],
        arguments=tuple((each[".offset"], each[".size"]) for each in kernel.get(".args", ())),
    )
