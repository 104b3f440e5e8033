"""Flags of nvcc, as authors write them for a whole compilation, sorted out for one of device code alone.

What says something of device code is kept, in the spelling that NVRTC and nvcc both take; the rest is dropped
with a reason. A flag that is not known here is kept: the compiler says what it thinks of it. What NVRTC takes
is from "Supported Compile Options" of its guide, 12.9, and was tried.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_HOST = "it is for the host compiler or the linker, which device code does not meet"
_LEVEL = "device code has one level of optimisation; --ptxas-options=-O2 is the assembler's"
_TARGET = "the target says what is compiled for"
_ALONE = "a kernel is compiled alone and whole"
_DONE = "it is so anyway"
_WARNINGS = "warnings of generated code are not shown"
_TOOL = "it speaks to nvcc, not of code"
#: Pattern of a whole flag -> why it is dropped. A pattern with a value allows it behind "=" or as the next
#: word, as nvcc does.
_DROPPED = (
    (r"-O[0-3s]?|--optimize(?:=.*)?|-g|--debug|-pg|--profile", _LEVEL),
    (r"-?-expt-\S+|-?-extended-lambda|-?-disable-warnings|-w", _DONE),
    (r"-?-W\S*", _WARNINGS),
    (r"-res-usage|--resource-usage", _DONE),
    (r"-f(?!mad|tz)[a-zA-Z]\S*|-m(?:32|64|arch\S*|tune\S*)|-?-shared|-static|-pthread", _HOST),
    (r"-l(?!ineinfo)\S*|-L\S*|--library\S*|-cudart\S*|--cudart\S*", _HOST),
    (r"-rdc=\S*|--relocatable-device-code=\S*|-d[cw]|--device-[cw]|-dlto|--dlink-time-opt|-ewp", _ALONE),
    (r"-c|--compile|-cubin|--cubin|-ptx|--ptx|-fatbin|--fatbin|-x=?\S*", _ALONE),
    (r"-gencode=\S+|--generate-code=\S+|-arch=\S+|--gpu-architecture=\S+|-code=\S+|--gpu-code=\S+", _TARGET),
    (r"-v|--verbose|--dryrun|-dryrun|--keep|-keep|--threads=\S+|-t=?\d+|--time=\S+|-time=\S+", _TOOL),
    (r"-allow-unsupported-compiler|--allow-unsupported-compiler|--source-in-ptx|-src-in-ptx", _TOOL),
)  # fmt: skip
#: Flags that take the next word -> why both are dropped.
_DROPPED_PAIRS = {
    **dict.fromkeys(("-Xcompiler", "--compiler-options", "-Xlinker", "--linker-options"), _HOST),
    **dict.fromkeys(("-Xnvlink", "--nvlink-options", "-l", "-L", "-cudart", "--cudart"), _HOST),
    **dict.fromkeys(("-ccbin", "--compiler-bindir"), _HOST),
    **dict.fromkeys(("-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code"), _TARGET),
    **dict.fromkeys(("-t", "--threads", "-o", "--output-file", "--keep-dir"), _TOOL),
    **dict.fromkeys(("-rdc", "--relocatable-device-code", "-x"), _ALONE),
    **dict.fromkeys(("-Werror", "--Werror"), _WARNINGS),
    "--optimize": _LEVEL,
}
#: Flags that take the next word, which NVRTC wants behind "=".
_JOINED = {
    **dict.fromkeys(("-std", "--std"), "-std"),
    **dict.fromkeys(("-maxrregcount", "--maxrregcount"), "--maxrregcount"),
    **dict.fromkeys(("-fmad", "--fmad"), "--fmad"),
    **dict.fromkeys(("-ftz", "--ftz"), "--ftz"),
    **dict.fromkeys(("-prec-div", "--prec-div"), "--prec-div"),
    **dict.fromkeys(("-prec-sqrt", "--prec-sqrt"), "--prec-sqrt"),
    **dict.fromkeys(("-diag-suppress", "--diag-suppress"), "--diag-suppress"),
}  # fmt: skip
#: Other spellings.
_SPELLED = {
    "-lineinfo": "--generate-line-info",
    "-use_fast_math": "--use_fast_math",
    "-G": "--device-debug",
    "-restrict": "--restrict",
    "-extra-device-vectorization": "--extra-device-vectorization",
}
_ASSEMBLER = ("-Xptxas", "--ptxas-options")
_OF_FRONT_END = ("-Xcudafe", "--cudafe-options")


@dataclass(frozen=True)
class DeviceFlags:
    """``kept`` for the device compiler; ``dropped``: flags as the author wrote them, with the reason."""

    kept: tuple[str, ...]
    dropped: tuple[tuple[str, str], ...]

    def notes(self) -> tuple[str, ...]:
        """A line for each reason."""
        reasons = dict.fromkeys(why for _, why in self.dropped)
        return tuple(f"compile flags {self._with(why)} are left out: {why}" for why in reasons)

    def _with(self, reason: str) -> str:
        return " ".join(flag for flag, why in self.dropped if why == reason)


def device_flags(flags: Sequence[str]) -> DeviceFlags:
    """The author's flags sorted out."""
    kept: list[str] = []
    dropped: list[tuple[str, str]] = []
    for flag, value in _paired(flags):
        why = _reason(flag, value)
        if why is not None:
            dropped.append((f"{flag} {value}" if value else flag, why))
        else:
            kept += _spelled(flag, value)
    return DeviceFlags(tuple(kept), tuple(dropped))


def _paired(flags: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Flags with the next word where they take it, else with nothing."""
    rest = iter(flags)
    takes_word = {*_DROPPED_PAIRS, *_JOINED, *_ASSEMBLER, *_OF_FRONT_END, "-D", "-U", "-I"}
    takes_word |= {"--define-macro", "--undefine-macro", "--include-path"}
    for flag in rest:
        yield flag, next(rest, "") if flag in takes_word else ""


def _reason(flag: str, value: str) -> str | None:
    """Why a flag is dropped, None where it is kept."""
    name, _, inner = flag.partition("=")
    if name in _DROPPED_PAIRS and (value or inner):
        return _DROPPED_PAIRS[name]
    if name in _ASSEMBLER and not _options(inner or value):
        return _DONE
    if name in _OF_FRONT_END and not _suppressed(inner or value):
        return _TOOL
    return next((why for pattern, why in _DROPPED if re.fullmatch(pattern, flag)), None)


def _spelled(flag: str, value: str) -> list[str]:
    """What the compiler is given for a flag."""
    name, _, inner = flag.partition("=")
    if name in _ASSEMBLER:
        return [f"--ptxas-options={option}" for option in _options(inner or value)]
    if name in _OF_FRONT_END:
        return [f"--diag-suppress={number}" for number in _suppressed(inner or value)]
    if name in _JOINED:
        return [f"{_JOINED[name]}={inner or value}"]
    if value:  # -D NAME, --define-macro NAME
        return [f"{flag}{'=' if flag.startswith('--') else ''}{value}"]
    return [_SPELLED.get(flag, flag)]


def _options(text: str) -> list[str]:
    """Options of the assembler, which nvcc takes in one text; its report is asked for anyway."""
    words = (word for part in shlex.split(text) for word in part.split(","))
    return [word for word in words if word and word not in ("-v", "--verbose")]


def _suppressed(text: str) -> list[str]:
    """The numbers of warnings that the front end is to suppress."""
    return re.findall(r"--diag_suppress[= ](\w+)", text)
