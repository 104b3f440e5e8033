"""Whether registers that a product of wgmma reads as its first operand stay as they are until it is
complete, in machine code as nvdisasm prints it (of PyPI's nvidia-cuda-nvdisasm, or of a CUDA toolkit)."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: 32-bit registers of the first operand of one instruction, of every type: 64 rows of 32 bytes.
_OPERAND = 4
_PRODUCT = re.compile(r"[HQI]GMMA\.64x(\d+)x\d+\.(F16\b)?")
_LINE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?(U?P\w+)\s+)?(\S+)\s*(.*?)\s*;")
_LABEL = re.compile(r"(\.L_x_\d+):")
_FUNCTION = re.compile(r"\.text\.(\S+):")
_REGISTER = re.compile(r"R(\d+)\b")
#: Instructions whose first register is one that they read.
_READERS = (
    "ISETP", "FSETP", "HSETP2", "DSETP", "PSETP", "FCHK", "R2P", "BRX", "JMX", "RET", "CALL", "WARPSYNC",
    "NANOSLEEP", "BMOV", "SYNCS.ARRIVE", "VOTEU",
)  # fmt: skip
#: Those that write several registers, whatever their suffixes say.
_WIDE = {"HMMA": 4, "IMMA": 4, "QMMA": 4, "CS2R": 2, "LDSM": 2}

#: Groups that are told apart.
_MOST_GROUPS = 8

#: Groups of products under way, oldest first, each as the registers that it reads; the last is not committed.
_State = tuple[frozenset[int], ...]
_NOTHING: _State = (frozenset(),)


@dataclass(frozen=True)
class Instruction:
    """``text``: as it is printed, without its guard ``predicate``; ``operands`` in their order."""

    predicate: str | None
    code: str
    operands: tuple[str, ...]

    @property
    def text(self) -> str:
        """What it is and what it takes."""
        return f"{self.code} {', '.join(self.operands)}"

    def written(self) -> range:
        """The registers that it writes."""
        first = next((each for each in self.operands if not re.fullmatch(r"!?U?P[\dT]|PR", each)), "")
        found = _REGISTER.match(first)
        if found is None or self.code.startswith(_READERS):
            return range(0)
        return range(int(found[1]), int(found[1]) + self._width())

    def _width(self) -> int:
        product = _PRODUCT.match(self.code)
        if product:
            return int(product[1]) // (4 if product[2] else 2)
        name, *parts = self.code.split(".")
        if "128" in parts or (name == "LDSM" and parts[-1] == "4"):
            return 4
        return _WIDE.get(name, 2 if name[0] == "D" or {"64", "WIDE"} & set(parts) else 1)

    def operand(self) -> frozenset[int]:
        """The registers of a product's first operand; none where it comes from shared memory."""
        found = _REGISTER.match(self.operands[1]) if _PRODUCT.match(self.code) else None
        return frozenset(range(int(found[1]), int(found[1]) + _OPERAND)) if found else frozenset()


def find_nvdisasm() -> Path | None:
    """The tool on the path, or in a wheel of this environment."""
    known = shutil.which("nvdisasm")
    packages = Path(sysconfig.get_path("purelib")) / "nvidia"
    return Path(known) if known else next(iter(packages.glob("*/bin/nvdisasm")), None)


def overwritten(cubin: bytes, nvdisasm: Path) -> list[str]:
    """The instructions of a cubin that write to registers that products under way read."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([nvdisasm, "-c", file.name], capture_output=True, text=True, check=True).stdout
    return overwritten_in(text)


def overwritten_in(text: str) -> list[str]:
    """The same of what nvdisasm prints."""
    return [f"{name}: {each}" for name, function in _functions(text) for each in function.overwritten()]


class _Function:
    """The instructions of a kernel, and where ``labels`` stand among them."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}

    def overwritten(self) -> list[str]:
        """Writes to registers of products under way, over every path."""
        seen: dict[int, set[_State]] = defaultdict(set)
        todo: list[tuple[int, _State]] = [(0, _NOTHING)]
        found: dict[str, None] = {}
        while todo:
            place, state = todo.pop()
            if place >= len(self.instructions) or state in seen[place]:
                continue
            seen[place].add(state)
            each = self.instructions[place]
            if frozenset().union(*state) & set(each.written()):
                found[each.text] = None
            after = _after(each, state)
            todo += [(follower, after) for follower in self._followers(place)]
        return list(found)

    def _followers(self, place: int) -> Iterator[int]:
        each = self.instructions[place]
        always = each.predicate is None or each.predicate in ("PT", "UPT")
        ends = each.code.split(".")[0] in ("BRA", "EXIT", "RET", "BRX", "JMX")
        if not (ends and always and "ANY" not in each.code):
            yield place + 1
        target = re.search(r"\.L_x_\d+", each.text) if each.code.startswith(("BRA", "CALL")) else None
        if target:
            yield self.labels[target[0]]


def _after(each: Instruction, state: _State) -> _State:
    """The groups under way behind an instruction."""
    if _PRODUCT.match(each.code):
        state = (*state[:-1], state[-1] | each.operand())
        return _shortened((*state, frozenset())) if "gsb0" in each.operands else state
    if each.code.startswith("WARPGROUP.DEPBAR"):
        *committed, last = state
        return (*committed[max(0, len(committed) - int(each.operands[1], 16)) :], last)
    return state


def _shortened(state: _State) -> _State:
    """Without groups in front that read no registers; the oldest of too many are one."""
    while len(state) > 1 and not state[0]:
        state = state[1:]
    return state if len(state) <= _MOST_GROUPS else (state[0] | state[1], *state[2:])


def _functions(text: str) -> Iterator[tuple[str, _Function]]:
    """The kernels of a cubin by name."""
    name, function = "", _Function()
    for line in text.splitlines():
        start, label, code = _FUNCTION.match(line), _LABEL.match(line), _LINE.search(line)
        if start:
            yield name, function
            name, function = start[1], _Function()
        elif label:
            function.labels[label[1]] = len(function.instructions)
        elif code:
            operands = tuple(part.strip() for part in code[3].split(",")) if code[3] else ()
            function.instructions.append(Instruction(code[1], code[2], operands))
    yield name, function
