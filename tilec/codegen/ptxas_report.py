"""What ptxas says about each kernel of a cubin (its ``-v`` report)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class KernelReport:
    """``registers`` and ``stack`` bytes per thread, ``spills``: bytes stored to and loaded from local memory,
    None where they are not known, ``static_shared`` bytes per block."""

    registers: int
    stack: int
    spills: int | None
    static_shared: int


def parse_report(log: str) -> dict[str, KernelReport]:
    """The report of every kernel in ``log``, by name. Kernels that it says nothing of are missing."""
    pieces = _ENTRY.split(log)[1:]
    reports = {name: _kernel(text) for name, text in zip(pieces[::2], pieces[1::2], strict=True)}
    return {name: report for name, report in reports.items() if report is not None}


def _kernel(text: str) -> KernelReport | None:
    registers, frame, shared = _REGISTERS.search(text), _FRAME.search(text), _SHARED.search(text)
    if registers is None or frame is None:
        return None
    return KernelReport(
        registers=int(registers[1]),
        stack=int(frame[1]),
        spills=int(frame[2]) + int(frame[3]),
        static_shared=int(shared[1]) if shared else 0,
    )
