"""Relocatable objects of CPU code, in the format that their system links: ELF, Mach-O or COFF."""

from __future__ import annotations

from tilec.codegen import coff, elf, macho


def undefined_symbols(code: bytes) -> frozenset[str]:
    """What an object needs from others, as C names it."""
    if code.startswith(macho.MAGIC):
        return macho.undefined_symbols(code)
    if code.startswith(coff.MAGICS):
        return coff.undefined_symbols(code)
    return elf.undefined_symbols(code)


def trimmed(code: bytes) -> bytes:
    """``code`` as it goes into a library: without what the library would export of it beside its own names,
    and, where the linker would keep it, debug information."""
    if code.startswith(macho.MAGIC):
        return macho.hide_symbols(code)
    if code.startswith(coff.MAGICS):
        return coff.hide_symbols(code)
    return elf.hide_weak_symbols(elf.strip_debug(code))
