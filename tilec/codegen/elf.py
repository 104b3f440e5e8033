"""Reads and trims relocatable ELF64 objects (System V ABI, chapter 4), little endian; reads cubins too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tilec.elf import HEADER, SECTION, SYMBOL, text_at

_SYMTAB, _NOBITS = 2, 8
_GLOBAL, _WEAK = 1, 2
_HIDDEN = 2
_OTHER_OFFSET = 5
_MAGIC = b"\x7fELF"
_DEBUG_PREFIXES = (".debug", ".rela.debug", ".rel.debug")


class _Section(NamedTuple):
    """One section header, fields in file order."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


_EMPTY = _Section(*[0] * 10)


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
    sections = _sections(code)
    found: list[Symbol] = []
    for section in sections:
        if section.type == _SYMTAB:
            found.extend(_symbols(_data(code, section), _data(code, sections[section.link])))
    return tuple(found)


def undefined_symbols(code: bytes) -> frozenset[str]:
    """What an object needs from others."""
    return frozenset(symbol.name for symbol in global_symbols(code) if symbol.undefined)


def named_sections(code: bytes) -> dict[str, bytes]:
    """The content of every section by its name; of one without content in the file, as many zeros."""
    sections = _sections(code)
    names = _data(code, sections[HEADER.unpack_from(code)[13]])
    return {
        text_at(names, section.name): bytes(section.size) if section.type == _NOBITS else _data(code, section)
        for section in sections
    }


def symbol_names(code: bytes) -> tuple[str, ...]:
    """The names in the symbol table, by index."""
    sections = _sections(code)
    table = next((section for section in sections if section.type == _SYMTAB), None)
    if table is None:
        return ()
    names = _data(code, sections[table.link])
    return tuple(text_at(names, row[0]) for row in SYMBOL.iter_unpack(_data(code, table)))


def without_names(code: bytes, prefix: str) -> bytes:
    """What an object does: its sections and symbols, of names that begin with ``prefix`` without that. Code
    that is no such object stays as it is."""
    if not code.startswith(_MAGIC):
        return code
    sections = _sections(code)
    tables = {section.link for section in sections if section.type == _SYMTAB}
    names = {HEADER.unpack_from(code)[13], *tables}
    return b"".join(
        _without_names(code, section, sections[section.link], prefix)
        for number, section in enumerate(sections)
        if number not in names
    )


def _without_names(code: bytes, section: _Section, names: _Section, prefix: str) -> bytes:
    """The header and content of a section, whose names are elsewhere."""
    head = SECTION.pack(*section._replace(name=0, offset=0))
    data = b"" if section.type == _NOBITS else _data(code, section)
    if section.type != _SYMTAB:
        return head + data
    texts = _data(code, names)
    rows = ((text_at(texts, row[0]).removeprefix(prefix), row[1:]) for row in SYMBOL.iter_unpack(data))
    return head + repr(list(rows)).encode()


def hide_weak_symbols(code: bytes) -> bytes:
    """``code`` with hidden visibility for the weak symbols that it defines: they serve the library that it is
    linked into, and no other."""
    changed = bytearray(code)
    for section in _sections(code):
        if section.type != _SYMTAB:
            continue
        for entry in range(section.offset, section.offset + section.size, SYMBOL.size):
            _, info, _, home, _, _ = SYMBOL.unpack_from(code, entry)
            if info >> 4 == _WEAK and home != 0:
                changed[entry + _OTHER_OFFSET] = _HIDDEN
    return bytes(changed)


def strip_debug(code: bytes) -> bytes:
    """``code`` without debug information. Its sections stay in the table as empty entries, so that no index
    in symbols and relocations changes."""
    fields = list(HEADER.unpack_from(code))
    sections = _sections(code)
    names = _data(code, sections[fields[13]])
    out = bytearray(code[: HEADER.size])
    table = [
        _EMPTY if text_at(names, section.name).startswith(_DEBUG_PREFIXES) else _append(out, code, section)
        for section in sections
    ]
    out += bytes(-len(out) % 8)
    fields[6] = len(out)
    for section in table:
        out += SECTION.pack(*section)
    HEADER.pack_into(out, 0, *fields)
    return bytes(out)


def _append(out: bytearray, code: bytes, section: _Section) -> _Section:
    """Copies a section's contents to the end of ``out``; its header with the new place."""
    if section.type == _NOBITS:
        return section._replace(offset=len(out))
    out += bytes(-len(out) % max(section.align, 1))
    offset = len(out)
    out += _data(code, section)
    return section._replace(offset=offset)


def _sections(code: bytes) -> tuple[_Section, ...]:
    header = HEADER.unpack_from(code)
    table, entry_size, count = header[6], header[11], header[12]
    return tuple(_Section(*SECTION.unpack_from(code, table + index * entry_size)) for index in range(count))


def _data(code: bytes, section: _Section) -> bytes:
    return code[section.offset : section.offset + section.size]


def _symbols(table: bytes, names: bytes) -> Iterator[Symbol]:
    for name, info, other, section, _value, size in SYMBOL.iter_unpack(table):
        if info >> 4 in (_GLOBAL, _WEAK):
            yield Symbol(text_at(names, name), section == 0, info >> 4 == _WEAK, other == _HIDDEN, size)
