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
_HIDDEN = 2
_OTHER_OFFSET = 5


@dataclass(frozen=True)
class Symbol:
    """One entry with a name that other objects see."""

    name: str
    undefined: bool
    weak: bool
    hidden: bool
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


def hide_weak_symbols(code: bytes) -> bytes:
    """``code`` with hidden visibility for the weak symbols that it defines: they serve the library that it is
    linked into, and no other."""
    changed = bytearray(code)
    for kind, offset, size, _ in _sections(code):
        if kind != _SYMTAB:
            continue
        for entry in range(offset, offset + size, _SYMBOL.size):
            _, info, _, section, _, _ = _SYMBOL.unpack_from(code, entry)
            if info >> 4 == _WEAK and section != 0:
                changed[entry + _OTHER_OFFSET] = _HIDDEN
    return bytes(changed)


def _sections(code: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(type, file offset, size, linked section) of every section."""
    header = _HEADER.unpack_from(code)
    table, entry_size, count = header[6], header[11], header[12]
    for index in range(count):
        fields = _SECTION.unpack_from(code, table + index * entry_size)
        yield fields[1], fields[4], fields[5], fields[6]


def _symbols(table: bytes, names: bytes) -> Iterator[Symbol]:
    for name, info, other, section, _value, size in _SYMBOL.iter_unpack(table):
        if info >> 4 in (_GLOBAL, _WEAK):
            end = names.index(b"\0", name)
            yield Symbol(names[name:end].decode(), section == 0, info >> 4 == _WEAK, other == _HIDDEN, size)
