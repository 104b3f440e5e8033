"""What a library asks of a system and shows to it: its ELF file beside what its metadata says. Of files of
other systems what tilec has put there is looked at, and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tilec.elf import (
    EXECUTABLE,
    FLAGS_1,
    LOAD_SEGMENT,
    RELRO_SEGMENT,
    RPATH,
    RUNPATH,
    STACK_SEGMENT,
    TEXTREL,
    WRITABLE,
    SharedLibrary,
    parse_library,
)
from tilec.errors import LibraryError, Place
from tilec.package.bindings.doors import public_symbols
from tilec.package.library.inspect import LibraryInfo, find_library, read_library
from tilec.portable.loader import SUMS_SECTION, section_digests, section_places
from tilec.systems import LINUX
from tilec.targets import parse_host

#: ld-linux is the dynamic loader itself, which every program has: it keeps thread locals.
_LIBRARIES = ("libc", "libm", "libdl", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64")
_GLIBC = "GLIBC_"
_NODELETE = 8  # DF_1_NODELETE


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. ``problem`` is empty where it is as it should be."""

    what: str
    problem: str = ""
    detail: str = ""


def audit_library(path: Path) -> list[Finding]:
    """Looks at everything that can be seen without loading a library.

    Raises:
        LibraryError: it is none, or a byte of it has changed since it was built.
    """
    library = find_library(path)
    info = read_library(library)
    found = [_digests(info), _tile_ir(info)]
    if parse_host(info.metadata["host"]).system is not LINUX:
        return found
    try:
        elf = parse_library(library.read_bytes())
    except ValueError as error:
        raise LibraryError(f"{library} is damaged", place=Place(str(library)), why=str(error)) from error
    return [*found, *(check(info, elf) for check in _CHECKS)]


def _digests(info: LibraryInfo) -> Finding:
    """That they agree was checked when the library was read."""
    data = info.path.read_bytes()
    missing = "" if SUMS_SECTION in section_places(data) else f"it has no section {SUMS_SECTION}"
    return Finding("digests", missing, f"{len(section_digests(data))} parts as they were built")


def _tile_ir(info: LibraryInfo) -> Finding:
    """One text for each variant."""
    variants = sum(len(kernel["variants"]) for kernel in info.metadata["kernels"])
    texts = len(info.ir_texts())
    problem = "" if texts == variants else f"{texts} texts for {variants} variants"
    return Finding("tile IR", problem, f"{texts} texts")


def _symbols(info: LibraryInfo, elf: SharedLibrary) -> Finding:
    """The library's own names, all of them and no others."""
    kernels = [kernel["name"] for kernel in info.metadata["kernels"]]
    wanted = set(public_symbols(info.metadata["name"], kernels))
    lost, foreign = sorted(wanted - elf.exports), sorted(elf.exports - wanted)
    problems = [f"exports {', '.join(foreign)} besides"] if foreign else []
    problems += [f"lacks {', '.join(lost)}"] if lost else []
    return Finding("symbols", "; ".join(problems), f"{len(elf.exports)} exported")


def _needed(info: LibraryInfo, elf: SharedLibrary) -> Finding:
    foreign = [name for name in elf.needed if name.partition(".so")[0] not in _LIBRARIES]
    problem = f"needs {', '.join(foreign)}" if foreign else ""
    return Finding("needed libraries", problem, ", ".join(elf.needed))


def _glibc(info: LibraryInfo, elf: SharedLibrary) -> Finding:
    """No symbol version above what the manifest's host has."""
    floor = _number(parse_host(info.metadata["host"]).version)
    above = sorted(name for name in elf.versions if name.startswith(_GLIBC) and _number(name) > floor)
    problem = f"needs {', '.join(above)}, its host is {info.metadata['host']}" if above else ""
    newest = max((_number(name) for name in elf.versions if name.startswith(_GLIBC)), default=())
    return Finding("glibc", problem, ".".join(map(str, newest)))


def _number(name: str) -> tuple[int, ...]:
    """GLIBC_2.17 as (2, 17); (0,) for names that have no number."""
    parts = name.removeprefix(_GLIBC).split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else (0,)


def _name(info: LibraryInfo, elf: SharedLibrary) -> Finding:
    wanted = LINUX.loaded.format(name=info.metadata["name"], abi=info.metadata["abi"])
    problem = "" if elf.soname == wanted else f'it is "{elf.soname}", for this ABI it should be {wanted}'
    return Finding("SONAME", problem, elf.soname)


def _loading(info: LibraryInfo, elf: SharedLibrary) -> Finding:
    """No code runs when the library is loaded, none of its code is written to, and it stays."""
    return Finding("loading", "; ".join(_loading_problems(elf)), "no constructor, stays loaded")


def _loading_problems(elf: SharedLibrary) -> Iterator[str]:
    tags = dict(elf.tags)
    if elf.constructors:
        yield "it has constructors"
    if TEXTREL in tags:
        yield "its code is relocated"
    if RPATH in tags or RUNPATH in tags:
        yield "it has a search path for libraries"
    if not tags.get(FLAGS_1, 0) & _NODELETE:
        yield "it may be unloaded while its threads run"
    both = EXECUTABLE | WRITABLE
    if any(kind == LOAD_SEGMENT and flags & both == both for kind, flags in elf.segments):
        yield "a segment is written and run"
    stacks = [flags for kind, flags in elf.segments if kind == STACK_SEGMENT]
    if not stacks or any(flags & EXECUTABLE for flags in stacks):
        yield "it asks for a stack that is run"
    if all(kind != RELRO_SEGMENT for kind, _ in elf.segments):
        yield "its relocated data stays writable"


_CHECKS: tuple[Callable[[LibraryInfo, SharedLibrary], Finding], ...] = (
    _symbols,
    _needed,
    _glibc,
    _name,
    _loading,
)
