"""Reads and trims relocatable COFF objects (Microsoft's "PE Format", the parts about object files)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

#: Machines, which an object begins with: x86-64 and aarch64.
MAGICS = (b"\x64\x86", b"\x64\xaa")
_HEADER = struct.Struct("<HHIIIHH")
_SECTION = struct.Struct("<8sIIIIIIHHI")
_SYMBOL = struct.Struct("<8sIhHBB")
_EXTERNAL = 2
_DIRECTIVES = b".drectve"


class _Symbol(NamedTuple):
    """One entry of the symbol table; ``section`` 0 with a ``value`` is a common one."""

    name: str
    value: int
    section: int
    storage: int


def undefined_symbols(code: bytes) -> frozenset[str]:
    """What an object needs from others; weak ones, which bring a definition, are none of these."""
    return frozenset(
        each.name
        for each in _symbols(code)
        if each.storage == _EXTERNAL and each.section == 0 and each.value == 0
    )


def hide_symbols(code: bytes) -> bytes:
    """``code`` that asks the linker for nothing: TVM's objects ask for their functions to be exported."""
    changed = bytearray(code)
    _, count, _, _, _, optional, _ = _HEADER.unpack_from(code)
    for number in range(count):
        row = _SECTION.unpack_from(code, _HEADER.size + optional + _SECTION.size * number)
        name, size, at = row[0], row[3], row[4]
        if name == _DIRECTIVES:
            changed[at : at + size] = b" " * size
    return bytes(changed)


def _symbols(code: bytes) -> Iterator[_Symbol]:
    _, _, _, start, count, _, _ = _HEADER.unpack_from(code)
    texts, number = start + _SYMBOL.size * count, 0
    while number < count:
        name, value, section, _, storage, more = _SYMBOL.unpack_from(code, start + _SYMBOL.size * number)
        yield _Symbol(_name(code, texts, name), value, section, storage)
        number += 1 + more


def _name(code: bytes, texts: int, name: bytes) -> str:
    """Eight letters, or four zeros and a place among the texts."""
    if name[:4] != bytes(4):
        return name.rstrip(b"\0").decode()
    at = texts + int.from_bytes(name[4:], "little")
    return code[at : code.index(b"\0", at)].decode()
