"""Reads what a built library says about itself, without loading it: its file is only parsed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilec.errors import InputError, LibraryError, Place
from tilec.package.family import image_section
from tilec.portable.loader import (
    META_SECTION,
    damage_of,
    format_of,
    has_kernels,
    own_folder,
    processor_of,
    section_places,
)
from tilec.sizes import SizeError, parse_size
from tilec.systems import SYSTEMS

if TYPE_CHECKING:
    from tilec.ir.roads import Road

_META, _IR = META_SECTION, ".tilec.ir"
#: Bytes of the smallest header, which is ELF's.
_SHORTEST = 64
#: What libraries are called, in a package for one host and, below a folder for each, for several.
_LIBRARIES = tuple(f"{lead}{each.library.format(name='*')}" for each in SYSTEMS for lead in ("", "*/"))
#: Images of a family begin at multiples of it in their section.
_IMAGE_ALIGN = 64


@dataclass(frozen=True)
class LibraryInfo:
    """A library on disk. ``arch`` is the machine of the file, ``size`` its bytes, ``metadata`` what
    metadata.json says too."""

    path: Path
    arch: str
    size: int
    metadata: dict[str, Any]

    def ir_texts(self) -> list[str]:
        """The printed tile IR of every variant, by variant id. Raises LibraryError when it is damaged."""
        from tilec.package.library.metadata import open_ir

        try:
            return open_ir(_sections(self.path, self.path.read_bytes())[_IR])
        except (KeyError, ValueError) as error:
            raise _no_library(self.path, f"its section {_IR} is missing or damaged: {error}") from error

    def roads(self) -> list[list[tuple[Road, ...]]]:
        """Per variant id the roads of each launch. Raises LibraryError when they are damaged."""
        from tilec.ir.roads import decode
        from tilec.package.library.metadata import open_roads

        try:
            found = open_roads(_sections(self.path, self.path.read_bytes())[_IR])
            return [[decode(text) for text in launches] for launches in found]
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise _no_library(self.path, f"its section {_IR} is missing or damaged: {error}") from error

    def image(self, family: str, sha256: str, size: int) -> bytes:
        """The image of a variant of a family that keeps its images in a section, by digest and size in the
        metadata. Raises LibraryError when it is damaged."""
        section = image_section(family)
        held = _sections(self.path, self.path.read_bytes()).get(section, b"")
        pieces = (held[at : at + size] for at in range(0, len(held), _IMAGE_ALIGN))
        found = next((piece for piece in pieces if hashlib.sha256(piece).hexdigest() == sha256), None)
        if found is None:
            raise _no_library(self.path, f"its section {section} has no image {sha256[:12]}")
        return found


def find_library(path: Path) -> Path:
    """The library of a path: itself, or the one in the ``lib`` folder of an install prefix; of several hosts'
    that of this machine, as the loader takes it."""
    if not path.is_dir():
        return path
    found = sorted(each for pattern in _LIBRARIES for each in (path / "lib").glob(pattern))
    found = found if len(found) < 2 else [each for each in found if has_kernels(each)] or found
    if len(found) > 1:
        found = [each for each in found if each.parent.name == own_folder()] or found
    if len(found) == 1:
        return found[0]
    raise LibraryError(
        f"{path} holds {len(found) or 'no'} libraries",
        place=Place(str(path)),
        remedy=f"name one of them: {', '.join(map(str, found))}"
        if found
        else "name the library itself, or a folder that tilec build wrote",
    )


def read_library(path: Path) -> LibraryInfo:
    """What a library, or the one of an install prefix, holds. Raises LibraryError for any other file."""
    from tilec.package.library.metadata import META_MAGIC, open_section

    path = find_library(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LibraryError(
            f"cannot read {path}",
            place=Place(str(path)),
            why=error.strerror or str(error),
            remedy="name the library itself, or a folder that tilec build wrote",
        ) from error
    sections = _sections(path, data)
    if _META not in sections:
        raise _no_library(path, f"it has no section {_META}")
    try:
        metadata = json.loads(open_section(sections[_META], META_MAGIC))
    except ValueError as error:
        raise _no_library(path, f"its section {_META} is damaged: {error}") from error
    problem = damage_of(data)
    if problem:
        raise LibraryError(
            f"{path} is damaged", place=Place(str(path)), why=problem, remedy="build it, or copy it, again"
        )
    _check_sizes(path, metadata)
    return LibraryInfo(path, processor_of(data), len(data), metadata)


def _check_sizes(path: Path, metadata: Mapping[str, Any]) -> None:
    """Raises LibraryError for metadata without kernels, or with a size that is none."""
    try:
        for text in {text for kernel in metadata["kernels"] for text in _size_texts(kernel)}:
            parse_size(text)
    except SizeError as error:
        raise _no_library(path, f"a size in its metadata is none: {error.what}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise _no_library(path, f"its metadata is no library's: {error!r}") from error


def _size_texts(kernel: Mapping[str, Any]) -> Iterator[str]:
    for param in kernel["params"]:
        yield from (*param["extents"], *(param["strides"] or ()))
    for variant in kernel["variants"]:
        yield from (text for launch in variant["launches"] for text in launch["grid"])
        yield from (piece["bytes"] for piece in variant["workspace"])


def no_such_dims(path: Path, given: Iterable[str], kernels: Mapping[str, Iterable[str]]) -> InputError:
    """That no kernel of a library has exactly the dims given, for the caller to raise. ``kernels``: dims by
    name."""
    known = "; ".join(f"{name}: {', '.join(dims) or 'none'}" for name, dims in kernels.items())
    return InputError(
        f"no kernel has the dims {', '.join(given)}",
        place=Place(str(path)),
        remedy=f"give every dim of one ({known})",
    )


def _sections(path: Path, data: bytes) -> dict[str, bytes]:
    """The content of every named section, those of tilec as ELF spells them."""
    if len(data) < _SHORTEST or format_of(data) is None:
        raise _no_library(path, "it is no 64-bit little-endian ELF, Mach-O or PE file")
    places = section_places(data)
    if not places:
        raise _no_library(path, "its section table is cut off or missing")
    return {name: data[at : at + size] for name, (at, size) in places.items()}


def _no_library(path: Path, why: str) -> LibraryError:
    return LibraryError(
        f"{path} is no tilec library",
        place=Place(str(path)),
        why=why,
        remedy="name a file that tilec build wrote",
    )
