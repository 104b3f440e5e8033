"""A TOML file as plain values plus the line of every key, so that errors can say where."""

from __future__ import annotations

import codecs
import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tilec.errors import ManifestError, Place
from tilec.spelling import nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KeyPath = tuple["str | int", ...]

#: The tables that a manifest may have from another one, and the key that names it.
_KERNEL, _EXTENDS = "kernel", "extends"
_KEY = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_HEADER = re.compile(rf"^\s*(\[\[?)\s*({_DOTTED})\s*\]")
_ASSIGNMENT = re.compile(rf"^\s*({_DOTTED})\s*=")
#: What ends a string, or a character of it that may not; what changes where a value ends.
_STRING_MARKS, _VALUE_MARKS = re.compile(r"""[\\"']"""), re.compile(r"""[#"'\[\]{}]""")
_ERROR_LINE = re.compile(r"\(at line (\d+), column \d+\)")


@dataclass(frozen=True)
class Document:
    """One TOML file. ``file`` is the path as the user wrote it; ``lines`` maps key paths, with table-array
    positions as ints (("kernel", 0, "dims")), to 1-based lines. ``kernels``: the file that its kernels are
    from, where that is another one."""

    file: str
    data: dict[str, Any]
    lines: dict[KeyPath, int] = field(repr=False)
    kernels: Document | None = field(default=None, repr=False)

    @property
    def folder(self) -> Path:
        """The folder that sources of kernels are relative to."""
        return self.kernels.folder if self.kernels else Path(self.file).resolve().parent

    def place(self, *path: str | int) -> Place:
        """Where a key stands; a key inside an inline table stands where the table does."""
        if self.kernels and path[:1] == (_KERNEL,):
            return self.kernels.place(*path)
        known = next((path[:n] for n in range(len(path), 0, -1) if path[:n] in self.lines), ())
        return Place(self.file, self.lines.get(known), format_path(path) or None)


def format_path(path: KeyPath) -> str:
    """("kernel", 0, "dims", "M") as kernel[0].dims.M."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def unreadable(path: Path, error: OSError, *, named: Place | None = None) -> ManifestError:
    """That a file, which a user ``named`` there, cannot be read, for the caller to raise."""
    near = _neighbour(path) if isinstance(error, FileNotFoundError) else None
    return ManifestError(
        f"cannot read {path}",
        place=named or Place(str(path)),
        why=error.strerror or str(error),
        remedy=f"did you mean {near}?" if near else "check the path",
    )


def _neighbour(path: Path) -> Path | None:
    """The file of this kind in its folder that somebody probably meant."""
    try:
        known = {each.stem: each for each in path.parent.iterdir() if each.suffix == path.suffix}
    except OSError:
        return None
    near = nearest(path.stem, known)
    return known[near] if near else None


def no_text(path: Path, error: UnicodeDecodeError) -> ManifestError:
    """That a file is no UTF-8, for the caller to raise."""
    what, remedy = f"{path} is not UTF-8 text", "save it as UTF-8"
    if error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        why = "it begins as UTF-16 does, which Windows PowerShell writes"
        return ManifestError(what, place=Place(str(path)), why=why, remedy=remedy)
    line = error.object.count(b"\n", 0, error.start) + 1
    why = f"byte 0x{error.object[error.start]:02x} is of no UTF-8 character here"
    return ManifestError(what, place=Place(str(path), line), why=why, remedy=remedy)


def read_document(path: Path, *, named: Place | None = None) -> Document:
    """Reads and parses a file, which another one may have ``named``. Raises ManifestError when it is missing,
    no text or no TOML."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise unreadable(path, error, named=named) from error
    except UnicodeDecodeError as error:
        raise no_text(path, error) from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(path, str(error)) from error
    return Document(str(path), data, key_lines(text))


def read_manifest(path: Path) -> Document:
    """As `read_document`, with the kernels of the file that ``extends`` names. Raises ManifestError also
    where there are kernels beside it."""
    document = read_document(path)
    named = document.data.get(_EXTENDS)
    if not isinstance(named, str):
        return document
    if _KERNEL in document.data:
        raise ManifestError(
            "a manifest has kernels of its own or those of another one",
            place=document.place(_EXTENDS),
            remedy="leave out extends, or the kernel tables",
        )
    kernels = read_document(path.parent / named, named=document.place(_EXTENDS))
    if _EXTENDS in kernels.data:
        raise ManifestError(
            f"{named} has no kernels of its own: it extends another manifest",
            place=document.place(_EXTENDS),
            remedy="name that one",
        )
    data = {**document.data, _KERNEL: kernels.data.get(_KERNEL, [])}
    return replace(document, data=data, kernels=kernels)


def _not_toml(path: Path, message: str) -> ManifestError:
    """The parser's message with its position moved into the place."""
    found = _ERROR_LINE.search(message)
    return ManifestError(
        f"{path} is not valid TOML",
        place=Place(str(path), int(found.group(1)) if found else None),
        why=_ERROR_LINE.sub("", message).strip(),
        remedy="correct the syntax on that line",
    )


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line of every table header and of every ``key = ...`` of a valid TOML text."""
    lines: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}
    table: KeyPath = ()
    value = _OpenValue()
    for number, line in enumerate(text.splitlines(), 1):
        if value.is_open:
            value.feed(line)
            continue
        header = _HEADER.match(line)
        if header:
            table = _enter(_split(header.group(2)), header.group(1) == "[[", counts)
            lines.setdefault(table, number)
            continue
        assignment = _ASSIGNMENT.match(line)
        if assignment:
            lines[table + _split(assignment.group(1))] = number
            value.feed(line[assignment.end() :])
    return lines


def _split(dotted: str) -> tuple[str, ...]:
    """The parts of a dotted key, unquoted."""
    return tuple(part.strip("\"'") for part in re.findall(_KEY, dotted))


def _enter(names: tuple[str, ...], is_array: bool, counts: dict[KeyPath, int]) -> KeyPath:
    """The key path of a table header: names of table arrays are followed by the current position."""
    path: KeyPath = ()
    for name in names:
        path += (name,)
        if is_array and len(path) - sum(isinstance(part, int) for part in path) == len(names):
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path += (counts[path],)
    return path


class _OpenValue:
    """Whether the value fed so far goes on in the next line (brackets or a triple-quoted string)."""

    def __init__(self) -> None:
        self._depth = 0
        self._quote = ""

    @property
    def is_open(self) -> bool:
        return self._depth > 0 or bool(self._quote)

    def feed(self, line: str) -> None:
        """Takes one more line of the value."""
        at = 0
        while at < len(line):
            at = self._inside_string(line, at) if self._quote else self._outside_string(line, at)
        if len(self._quote) == 1:
            self._quote = ""

    def _inside_string(self, line: str, at: int) -> int:
        at = _next(_STRING_MARKS, line, at)
        if line.startswith("\\", at) and self._quote[0] == '"':
            return at + 2
        if not line.startswith(self._quote, at):
            return at + 1
        width, self._quote = len(self._quote), ""
        return at + width

    def _outside_string(self, line: str, at: int) -> int:
        at = _next(_VALUE_MARKS, line, at)
        if line[at : at + 1] in ("", "#"):
            return len(line)
        if line[at] in "\"'":
            self._quote = line[at] * 3 if line.startswith(line[at] * 3, at) else line[at]
            return at + len(self._quote)
        self._depth += 1 if line[at] in "[{" else -1
        return at + 1


def _next(marks: re.Pattern[str], line: str, at: int) -> int:
    """Where the next mark stands from a place of a line on; the end of the line where there is none."""
    found = marks.search(line, at)
    return len(line) if found is None else found.start()
