"""What ptxas says about each kernel of a cubin (its ``-v`` report, its warnings)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tilec.ir.roads import Loss

_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
#: A line of the assembler's, and what in it says that something costs time: a warning, an advisory, or a wait
#: that it puts between products.
_LINE = re.compile(r"ptxas\s+(?P<level>warning|info)\s*:\s*(?:\(C\d+\)\s*)?(?P<text>.*)")
_ADVICE, _WAIT = "Potential Performance Loss: ", "warpgroup.wait is injected"
#: The kernel that a line names, and where in the PTX it stands, which nobody sees.
_NAMED = re.compile(r"\s+(?:in|for)(?: the)? (?:function|entry) '?(\w+)'?")
_AT = re.compile(r" in around line \d+ by compiler")
#: What to change, by a word of the warning.
_REMEDIES = {
    "wgmma": "choose smaller tiles, so that its operands and sums keep their registers, or leave unroll out",
    "warpgroup": "use no sums of a product, and write no operand of it, before the next T.gemm is behind it",
    "setmaxnreg": "leave out what limits registers: min_blocks_per_sm, or a flag",
    "local memory": "index arrays of a thread (T.alloc_local) by constants",
    "spill": "choose smaller tiles, or give T.Kernel more threads",
}
_REMEDY = "choose smaller tiles in the config"


@dataclass(frozen=True)
class KernelReport:
    """``registers`` and ``stack`` bytes per thread, ``spills``: bytes stored to and loaded from local memory,
    None where they are not known, ``static_shared`` bytes per block, ``warnings`` that name the kernel, as
    ptxas words them."""

    registers: int
    stack: int
    spills: int | None
    static_shared: int
    warnings: tuple[str, ...] = ()

    def losses(self) -> Iterator[tuple[str, Loss]]:
        """What costs time, as the road that is taken and what is lost."""
        if self.spills:
            how = f"slow: {self.spills} bytes of registers spill to local memory in each thread"
            yield how, Loss("", "its tiles need more registers than a thread has", _REMEDIES["spill"])
        elif self.stack:
            how = f"slow: {self.stack} bytes of local memory in each thread"
            yield (
                how,
                Loss("", "what a thread indexes at run time has no registers", _REMEDIES["local memory"]),
            )
        for text in self.warnings:
            found = (remedy for word, remedy in _REMEDIES.items() if word in text)
            yield "slow: the assembler warns", Loss("", text, next(found, _REMEDY))


def parse_report(log: str) -> dict[str, KernelReport]:
    """The report of every kernel in ``log``, by name. Kernels that it says nothing of are missing."""
    pieces = _ENTRY.split(log)
    names = pieces[1::2]
    said = list(_warnings(pieces, names))
    reports = {
        name: _kernel(text, tuple(dict.fromkeys(line for about, line in said if about in (name, None))))
        for name, text in zip(names, pieces[2::2], strict=True)
    }
    return {name: report for name, report in reports.items() if report is not None}


def _warnings(pieces: list[str], names: list[str]) -> Iterator[tuple[str | None, str]]:
    """Every warning with the kernel that it is about: the one that it names, else the one whose report it
    stands in, else all (None)."""
    for around, text in zip((None, *names), pieces[::2], strict=True):
        for line in text.splitlines():
            found = _LINE.match(line.strip())
            if found is None or not _costs_time(found):
                continue
            about = next((name for name in _NAMED.findall(found["text"]) if name in names), around)
            yield about, _AT.sub("", _NAMED.sub("", found["text"].removeprefix(_ADVICE)))


def _costs_time(line: re.Match[str]) -> bool:
    return line["level"] == "warning" or _ADVICE in line["text"] or _WAIT in line["text"]


def _kernel(text: str, warnings: tuple[str, ...]) -> KernelReport | None:
    registers, frame, shared = _REGISTERS.search(text), _FRAME.search(text), _SHARED.search(text)
    if registers is None or frame is None:
        return None
    return KernelReport(
        registers=int(registers[1]),
        stack=int(frame[1]),
        spills=int(frame[2]) + int(frame[3]),
        static_shared=int(shared[1]) if shared else 0,
        warnings=warnings,
    )
