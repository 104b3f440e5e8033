"""The digests of a linked library's parts, written into the library itself.

.tilec.sums = "TILECSUM" u32 version, u32 0, u64 size, sha256 of the JSON, JSON, zeros up to its full size
JSON        = {"program headers": sha256, ".text": sha256, ...}

The linker leaves room; `seal` fills it. The loader reads it before it lets the dynamic loader near the file.
"""

from __future__ import annotations

import json
from pathlib import Path

from tilec.errors import PackageError
from tilec.package.library.metadata import section
from tilec.package.library.sign import sign_again
from tilec.portable.loader import MACH_O, SUMS_MARK, SUMS_SECTION, format_of, section_digests, section_places

#: Bytes of the section: enough for some 60 sections.
SUMS_SIZE = 6144


def seal(library: Path) -> None:
    """Writes the digests of ``library`` into it. Raises PackageError where there is no room for them."""
    data = bytearray(library.read_bytes())
    at, size = section_places(data).get(SUMS_SECTION, (0, 0))
    text = json.dumps(section_digests(data), separators=(",", ":")).encode()
    content = section(SUMS_MARK, text)
    if len(content) > size:
        raise PackageError(
            f"{library.name} has no room for the digests of its sections",
            why=f"they take {len(content)} bytes, its section {SUMS_SECTION} has {size}",
            remedy="use ziglang's linker, which keeps the sections that tilec writes",
        )
    data[at : at + len(content)] = content
    if format_of(data) is MACH_O:
        sign_again(data)
    library.write_bytes(data)
