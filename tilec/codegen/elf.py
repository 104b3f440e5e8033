"""Reads the symbol table of a relocatable ELF64 object (System V ABI, chapter 4), little endian."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB = 2
_GLOBAL, _WEAK = 1, 2


@dataclass(frozen=True)
class Symbol:
    """One entry with a name that other objects see."""

    name: str
    undefined: bool
    weak: bool
    size: int


def global_symbols(code: bytes) -> tuple[Symbol, ...]:
    """The global and weak symbols of an object, in table order."""
    sections = tuple(_sections(code))
    found: list[Symbol] = []
    for kind, offset, size, link in sections:
        if kind == _SYMTAB:
            names = sections[link]
            found.extend(_symbols(code[offset : offset + size], code[names[1] : names[1] + names[2]]))
    return tuple(found)


def undefined_symbols(code: bytes) -> frozenset[str]:
    """What an object needs from others."""
    return frozenset(symbol.name for symbol in global_symbols(code) if symbol.undefined)


def _sections(code: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(type, file offset, size, linked section) of every section."""
    header = _HEADER.unpack_from(code)
    table, entry_size, count = header[6], header[11], header[12]
    for index in range(count):
        fields = _SECTION.unpack_from(code, table + index * entry_size)
        yield fields[1], fields[4], fields[5], fields[6]


def _symbols(table: bytes, names: bytes) -> Iterator[Symbol]:
    for name, info, _other, section, _value, size in _SYMBOL.iter_unpack(table):
        if info >> 4 in (_GLOBAL, _WEAK):
            end = names.index(b"\0", name)
            yield Symbol(names[name:end].decode(), section == 0, info >> 4 == _WEAK, size)
