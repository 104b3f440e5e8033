"""One tree of errors: every class has an exit code, a place and a remedy.

The command line prints ``what``, ``where``, ``why`` and ``remedy`` and exits with ``exit_code``; everything
below it raises. Exit codes: 1 the work failed, 2 the input is wrong, 3 the environment lacks something.
"""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, TypeAlias

#: Where a construct lies in its line, as `ast` counts: offsets of the line's UTF-8 bytes, from 0, the end
#: exclusive; None for an end in a later line.
Columns: TypeAlias = "tuple[int, int | None]"


@dataclass(frozen=True)
class Place:
    """Where an error stands: any of a file, a line of it (1-based), and a key or construct in it. ``columns``
    are those of the construct, where the file is source text that an error should show."""

    file: str | None = None
    line: int | None = None
    key: str | None = None
    columns: Columns | None = field(default=None, compare=False)

    def excerpt(self) -> list[str]:
        """The line's text and a line with carets under the construct; nothing where they are not known."""
        if self.file is None or self.line is None or self.columns is None:
            return []
        text = linecache.getline(self.file, self.line).rstrip("\r\n")
        if not text.strip():
            return []
        start, end = (_characters(text, offset) for offset in self.columns)
        margin = len(text) - len(text.lstrip())
        mark = " " * max(0, start - margin) + "^" * max(1, end - start)
        number = str(self.line)
        return [f"{number} | {text[margin:].expandtabs(1)}", f"{' ' * len(number)} | {mark}"]

    def __str__(self) -> str:
        """`file:line: key`, leaving out what is unknown."""
        position = f"{self.file}:{self.line}" if self.file and self.line else self.file or ""
        return ": ".join(part for part in (position, self.key or "") if part)


def _characters(text: str, offset: int | None) -> int:
    """How many characters the first ``offset`` bytes of ``text`` are; None: all of them."""
    if offset is None or text.isascii():
        return len(text) if offset is None else min(offset, len(text))
    return len(text.encode()[:offset].decode(errors="ignore"))


@dataclass(frozen=True)
class Remark:
    """What compiles and is hardly meant: a warning, and an error under ``--strict``."""

    what: str
    place: Place
    remedy: str = ""

    def __str__(self) -> str:
        """`file:line: what; remedy`."""
        said = f"{self.place}: {self.what}" if str(self.place) else self.what
        return f"{said}; {self.remedy}" if self.remedy else said


class Kind(str, Enum):
    """What an error is about, for code that counts or treats kinds apart: what a block of a device has too
    little of, what no instruction does, or what the author wrote."""

    SHARED_MEMORY = "shared memory"
    REGISTERS = "registers"
    THREADS = "threads"
    INSTRUCTION = "instruction shape"
    SOURCE = "kernel source"
    OTHER = "other"


class TilecError(Exception):
    """Root of the tree. ``what`` in one sentence; ``why``, ``given`` (what the construct was given: buffers
    and values with their dtypes and shapes) and ``remedy`` may be empty. ``kind``: that of the class where
    the error does not say."""

    exit_code: ClassVar[int] = 1
    kind: Kind = Kind.OTHER

    def __init__(
        self,
        what: str,
        *,
        place: Place | None = None,
        why: str = "",
        given: str = "",
        remedy: str = "",
        kind: Kind | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.place = place
        self.why = why
        self.given = given
        self.remedy = remedy
        if kind is not None:
            self.kind = kind

    def parts(self) -> list[tuple[str, str]]:
        """What is known beside ``what``, labelled; texts may have several lines."""
        where = "" if self.place is None else "\n".join([str(self.place), *self.place.excerpt()])
        parts = [("where", where), ("why", self.why), ("given", self.given), ("remedy", self.remedy)]
        return [(label, text) for label, text in parts if text]

    def __str__(self) -> str:
        """``what`` and the parts, one below the other."""
        lines = [f"  {label}: {text}".replace("\n", "\n    ") for label, text in self.parts()]
        return "\n".join([self.what, *lines])


class InputError(TilecError):
    """The input is wrong: usage, manifest, kernel source."""

    exit_code = 2


class ManifestError(InputError):
    """The manifest cannot be used as it stands."""


class SourceError(InputError):
    """The kernel source cannot be used as it stands."""

    kind = Kind.SOURCE


class SourceValueError(SourceError, ValueError):
    """A `SourceError` that callers of the language may catch as `ValueError`."""


class SourceTypeError(SourceError, TypeError):
    """A `SourceError` that callers of the language may catch as `TypeError`."""


class SourceIndexError(SourceError, IndexError):
    """A `SourceError` that callers of the language may catch as `IndexError`."""


class SourceAssertionError(SourceError, AssertionError):
    """A `SourceError` that callers of the language may catch as `AssertionError`."""


class SourceRuntimeError(SourceError, RuntimeError):
    """A `SourceError` that callers of the language may catch as `RuntimeError`."""


class UnsupportedError(SourceError, NotImplementedError):
    """A construct that tilec does not offer (yet); the text names it and the way around."""

    kind = Kind.INSTRUCTION


class IRError(TilecError):
    """A tile IR kernel that breaks the rules of the IR: a defect of the pass that made it."""


class EvalError(TilecError):
    """The interpreter met what the language leaves undefined: a division by zero, a false assumption."""


class EmulationError(TilecError):
    """Device code did what a device leaves undefined: a race, an access out of bounds, a wait for ever."""


class CompileError(TilecError):
    """Lowering or code generation failed. ``for_rings``: bytes of shared memory that all stages of rings may
    take at most where it would not; None where it is not for them."""

    for_rings: int | None = None


class StrictError(TilecError):
    """Warnings where ``--strict`` lets none pass."""

    def __init__(self, remarks: Sequence[Remark]) -> None:
        alone = len(remarks) == 1
        super().__init__(
            "1 warning is an error under --strict"
            if alone
            else f"{len(remarks)} warnings are errors under --strict",
            why="\n".join(map(str, remarks)),
            remedy="mend what the lines name, or leave out --strict",
        )


class PackageError(TilecError):
    """A package could not be written or linked."""


class LibraryError(InputError):
    """A file that should be a tilec library is none, is damaged, or is of another architecture."""


class VerifyError(TilecError):
    """A built library gave a wrong answer."""


class TuneError(TilecError):
    """Tuning could not be done, or its results could not be kept."""


class EnvironmentError_(TilecError):
    """The environment lacks something: toolchain, driver, device."""

    exit_code = 3
