"""Reads and trims relocatable Mach-O objects, 64 bits, little endian (mach-o/loader.h and mach-o/nlist.h)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

MAGIC = b"\xcf\xfa\xed\xfe"
_HEADER = struct.Struct("<IiiIIIII")
_COMMAND = struct.Struct("<II")
_TABLE = struct.Struct("<IIIIII")
_SYMBOL = struct.Struct("<IBBHQ")
_SYMTAB = 2
_EXTERNAL, _PRIVATE, _TYPE, _DEBUG = 0x01, 0x10, 0x0E, 0xE0
_TYPE_OFFSET = 4


class _Symbol(NamedTuple):
    """One entry of the symbol table: where it is, its name without C's underscore, its type byte."""

    at: int
    name: str
    type: int

    @property
    def is_global(self) -> bool:
        return bool(self.type & _EXTERNAL) and not self.type & _DEBUG

    @property
    def is_defined(self) -> bool:
        return bool(self.type & _TYPE)


def undefined_symbols(code: bytes) -> frozenset[str]:
    """What an object needs from others, as C names it."""
    return frozenset(each.name for each in _symbols(code) if each.is_global and not each.is_defined)


def hide_symbols(code: bytes) -> bytes:
    """``code`` whose symbols serve the library that it is linked into, and no other."""
    changed = bytearray(code)
    for symbol in _symbols(code):
        if symbol.is_global and symbol.is_defined:
            changed[symbol.at + _TYPE_OFFSET] |= _PRIVATE
    return bytes(changed)


def _symbols(code: bytes) -> Iterator[_Symbol]:
    at = _HEADER.size
    for _ in range(_HEADER.unpack_from(code)[4]):
        command, size = _COMMAND.unpack_from(code, at)
        if command == _SYMTAB:
            yield from _table(code, *_TABLE.unpack_from(code, at)[2:])
        at += size


def _table(code: bytes, start: int, count: int, texts: int, _size: int) -> Iterator[_Symbol]:
    for number in range(count):
        at = start + _SYMBOL.size * number
        name, kind, *_ = _SYMBOL.unpack_from(code, at)
        end = code.index(b"\0", texts + name)
        yield _Symbol(at, code[texts + name : end].decode().removeprefix("_"), kind)
