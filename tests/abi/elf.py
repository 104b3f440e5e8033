"""What `readelf -d`, `readelf -V` and `nm -D` say, for machines that have none of them."""

from __future__ import annotations

from pathlib import Path

from tilec.elf import SharedLibrary, parse_library


def read(path: Path) -> SharedLibrary:
    """Parses a 64-bit little-endian shared library, or a program, which has no SONAME."""
    return parse_library(path.read_bytes())
