"""What `readelf -d`, `readelf -V` and `nm -D` say, for machines that have none of them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC, _DYNSYM, _VERNEED, _NEEDED, _SONAME = 6, 11, 0x6FFFFFFE, 1, 14
_CONSTRUCTORS = (12, 25, 27, 32, 33)  # INIT, INIT_ARRAY and its size, PREINIT_ARRAY and its size


@dataclass(frozen=True)
class Elf:
    """``exports``: defined dynamic symbols; ``versions``: symbol versions needed, such as GLIBC_2.14;
    ``constructors``: dynamic tags that would run code at load; ``flags``: of each section by name."""

    needed: tuple[str, ...]
    soname: str
    exports: frozenset[str]
    imports: frozenset[str]
    versions: frozenset[str]
    constructors: tuple[int, ...]
    flags: dict[str, int]


def read(path: Path) -> Elf:
    """Parses a 64-bit little-endian shared library, or a program, which has no SONAME."""
    data = path.read_bytes()
    (offset,) = struct.unpack_from("<Q", data, 40)
    count, names_at = struct.unpack_from("<HH", data, 60)
    sections = [_SECTION.unpack_from(data, offset + 64 * index) for index in range(count)]
    contents = [b"" if row[1] == 8 else data[row[4] : row[4] + row[5]] for row in sections]
    named = {_text(contents[names_at], row[0]): row for row in sections}
    tags = [
        pair
        for row, content in zip(sections, contents, strict=True)
        if row[1] == _DYNAMIC
        for pair in struct.iter_unpack("<QQ", content)
    ]
    strings = contents[next(row[6] for row in sections if row[1] == _DYNAMIC)]
    symbols = contents[[row[1] for row in sections].index(_DYNSYM)]
    rows = [row for row in _SYMBOL.iter_unpack(symbols) if row[0]]
    return Elf(
        needed=tuple(_text(strings, value) for tag, value in tags if tag == _NEEDED),
        soname=next((_text(strings, value) for tag, value in tags if tag == _SONAME), ""),
        exports=frozenset(_text(strings, row[0]) for row in rows if row[3] != 0),
        imports=frozenset(_text(strings, row[0]) for row in rows if row[3] == 0),
        versions=frozenset(_versions(strings, contents[[row[1] for row in sections].index(_VERNEED)])),
        constructors=tuple(tag for tag, _ in tags if tag in _CONSTRUCTORS),
        flags={name: row[2] for name, row in named.items()},
    )


def _versions(strings: bytes, data: bytes) -> list[str]:
    found, at = [], 0
    while True:
        _, count, _, aux, following = struct.unpack_from("<HHIII", data, at)
        place = at + aux
        for _ in range(count):
            _, _, _, name, step = struct.unpack_from("<IHHII", data, place)
            found.append(_text(strings, name))
            place += step
        if not following:
            return found
        at += following


def _text(strings: bytes, at: int) -> str:
    return strings[at : strings.index(b"\0", at)].decode()
