"""Reads shared libraries: 64-bit little-endian ELF files (System V ABI, chapters 4 and 5). Only parses."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

#: The header of a file, those of sections and segments, and an entry of a table of symbols.
HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
_PROGRAM = struct.Struct("<IIQQQQQQ")
SYMBOL = struct.Struct("<IBBHQQ")
_NOBITS, _DYNAMIC, _DYNSYM, _VERNEED = 8, 6, 11, 0x6FFFFFFE
#: Tags of the dynamic section.
NEEDED, SONAME, RPATH, RUNPATH, TEXTREL, FLAGS, FLAGS_1 = 1, 14, 15, 29, 22, 30, 0x6FFFFFFB
#: INIT, INIT_ARRAY and its size, PREINIT_ARRAY and its size: code that runs when the library is loaded.
CONSTRUCTORS = (12, 25, 27, 32, 33)
LOAD_SEGMENT, STACK_SEGMENT, RELRO_SEGMENT = 1, 0x6474E551, 0x6474E552
EXECUTABLE, WRITABLE = 1, 2


class Section(NamedTuple):
    """One section: its header's fields that anybody here asks for, and its content."""

    name: str
    type: int
    flags: int
    link: int
    content: bytes


@dataclass(frozen=True)
class SharedLibrary:
    """``needed``: libraries that the dynamic loader brings; ``exports`` and ``imports``: dynamic symbols that
    are defined and undefined; ``versions``: symbol versions asked for, such as GLIBC_2.14; ``tags``: the
    dynamic section; ``segments``: (type, flags) of the program headers."""

    sections: dict[str, Section]
    needed: tuple[str, ...]
    soname: str
    exports: frozenset[str]
    imports: frozenset[str]
    versions: frozenset[str]
    tags: tuple[tuple[int, int], ...]
    segments: tuple[tuple[int, int], ...]

    @property
    def constructors(self) -> tuple[int, ...]:
        """Tags that would run code when the library is loaded."""
        return tuple(tag for tag, _ in self.tags if tag in CONSTRUCTORS)


def parse_library(data: bytes) -> SharedLibrary:
    """Raises ValueError for what is no such file."""
    try:
        return _parse(data)
    except (struct.error, IndexError, StopIteration, UnicodeDecodeError) as error:
        raise ValueError(f"it is no whole shared library: {error}") from error


def _parse(data: bytes) -> SharedLibrary:
    header = HEADER.unpack_from(data)
    if header[0][:6] != b"\x7fELF\x02\x01":
        raise ValueError("it is no 64-bit little-endian ELF file")
    sections = _sections(data, header)
    dynamic = next(each for each in sections if each.type == _DYNAMIC)
    strings = sections[dynamic.link].content
    tags = tuple(struct.iter_unpack("<QQ", dynamic.content[: len(dynamic.content) // 16 * 16]))
    symbols = next(each.content for each in sections if each.type == _DYNSYM)
    rows = [row for row in SYMBOL.iter_unpack(symbols) if row[0]]
    needs = next((each.content for each in sections if each.type == _VERNEED), b"")
    return SharedLibrary(
        sections={each.name: each for each in sections},
        needed=tuple(text_at(strings, value) for tag, value in tags if tag == NEEDED),
        soname=next((text_at(strings, value) for tag, value in tags if tag == SONAME), ""),
        exports=frozenset(text_at(strings, row[0]) for row in rows if row[3] != 0),
        imports=frozenset(text_at(strings, row[0]) for row in rows if row[3] == 0),
        versions=frozenset(_versions(strings, needs) if needs else ()),
        tags=tags,
        segments=tuple(_segments(data, header)),
    )


def _sections(data: bytes, header: tuple[int, ...]) -> list[Section]:
    rows = [SECTION.unpack_from(data, header[6] + 64 * number) for number in range(header[12])]
    contents = [b"" if row[1] == _NOBITS else data[row[4] : row[4] + row[5]] for row in rows]
    names = contents[header[13]]
    return [
        Section(text_at(names, row[0]), row[1], row[2], row[6], content)
        for row, content in zip(rows, contents, strict=True)
    ]


def _segments(data: bytes, header: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    for number in range(header[10]):
        kind, flags, *_ = _PROGRAM.unpack_from(data, header[5] + 56 * number)
        yield kind, flags


def _versions(strings: bytes, data: bytes) -> Iterator[str]:
    """The names in a table of needed versions: records, each with a chain of auxiliary ones."""
    at = 0
    while True:
        _, count, _, aux, following = struct.unpack_from("<HHIII", data, at)
        place = at + aux
        for _ in range(count):
            _, _, _, name, step = struct.unpack_from("<IHHII", data, place)
            yield text_at(strings, name)
            place += step
        if not following:
            return
        at += following


def text_at(strings: bytes, at: int) -> str:
    """The text that begins at a place of a table of strings, each of which a zero ends."""
    return strings[at : strings.index(b"\0", at)].decode()
