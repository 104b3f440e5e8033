"""One tree of errors: every class has an exit code, a place and a remedy.

The command line prints ``what``, ``where``, ``why`` and ``remedy`` and exits with ``exit_code``; everything
below it raises. Exit codes: 1 the work failed, 2 the input is wrong, 3 the environment lacks something.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Place:
    """Where an error stands: any of a file, a line of it (1-based), and a key or construct in it."""

    file: str | None = None
    line: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        """`file:line: key`, leaving out what is unknown."""
        position = f"{self.file}:{self.line}" if self.file and self.line else self.file or ""
        return ": ".join(part for part in (position, self.key or "") if part)


class TilecError(Exception):
    """Root of the tree. ``what`` in one sentence; ``why`` and ``remedy`` may be empty."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, place: Place | None = None, why: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.place = place
        self.why = why
        self.remedy = remedy

    def __str__(self) -> str:
        """The four parts, one line each, empty ones left out."""
        parts = [self.what]
        if self.place is not None and str(self.place):
            parts.append(f"  where: {self.place}")
        if self.why:
            parts.append(f"  why: {self.why}")
        if self.remedy:
            parts.append(f"  remedy: {self.remedy}")
        return "\n".join(parts)


class InputError(TilecError):
    """The input is wrong: usage, manifest, kernel source."""

    exit_code = 2


class ManifestError(InputError):
    """The manifest cannot be used as it stands."""


class SourceError(InputError):
    """The kernel source cannot be used as it stands."""


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


class IRError(TilecError):
    """A tile IR kernel that breaks the rules of the IR: a defect of the pass that made it."""


class EvalError(TilecError):
    """The interpreter met what the language leaves undefined: a division by zero, a false assumption."""


class EmulationError(TilecError):
    """Device code did what a device leaves undefined: a race, an access out of bounds, a wait for ever."""


class CompileError(TilecError):
    """Lowering or code generation failed."""


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
