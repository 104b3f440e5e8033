"""A content-addressed store on disk, safe under many processes.

An entry is written aside and renamed into place, so a reader sees all of it or nothing. Entries are never
changed, only replaced; a damaged one reads as missing. The store lives under ``TILEC_CACHE_DIR``.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tilec.settings import read_settings

_LAYOUT = "v1"
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class CacheInfo:
    """What a store holds: ``entries`` files of ``size`` bytes in all."""

    path: Path
    entries: int
    size: int


@dataclass(frozen=True)
class Store:
    """A store below ``root``. ``kind`` separates what is stored ("image", "sources", "package")."""

    root: Path

    def get(self, kind: str, key: str) -> bytes | None:
        """The bytes of an entry; None when it is missing or damaged."""
        try:
            data = self._path(kind, key).read_bytes()
        except OSError:
            return None
        digest, payload = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        return payload if hashlib.sha256(payload).digest() == digest else None

    def put(self, kind: str, key: str, payload: bytes) -> None:
        """Stores an entry. Raises OSError when the folder cannot be written or the disk is full."""
        path = self._path(kind, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, hashlib.sha256(payload).digest() + payload)

    def info(self) -> CacheInfo:
        """Counts the entries."""
        sizes = [path.stat().st_size for path in self._files()]
        return CacheInfo(self.root, len(sizes), sum(sizes))

    def clear(self) -> CacheInfo:
        """Removes all entries and returns what they were. Other files below ``root`` stay."""
        held = self.info()
        shutil.rmtree(self.root / _LAYOUT, ignore_errors=True)
        return held

    def folder(self, kind: str) -> Path:
        """Where what is stored of a kind lies."""
        return self.root / _LAYOUT / kind

    def _path(self, kind: str, key: str) -> Path:
        return self.folder(kind) / key[:2] / key

    def _files(self) -> Iterator[Path]:
        return (path for path in (self.root / _LAYOUT).rglob("*") if path.is_file())


def clear_cache() -> None:
    """Removes every entry of the cache of this user: what `tilec cache clear` does."""
    Store(read_settings().cache_dir).clear()


def write_atomically(path: Path, data: bytes, mode: int | None = None) -> None:
    """Puts a file into place in one step; on any failure the old one stays and nothing is left beside it.
    ``mode``: its permissions, the owner's alone unless given."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def digest(*parts: str | bytes) -> str:
    """A key of several parts; their boundaries count."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()


@lru_cache(maxsize=1)
def toolchain_digest() -> str:
    """One hash over what compiles: tilec's own sources, the versions of TVM, ziglang and NVRTC, Python's."""
    folder = Path(__file__).parent
    sources = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    parts: list[str | bytes] = [f"python {sys.version_info.major}.{sys.version_info.minor}"]
    for name in ("apache-tvm", "apache-tvm-ffi", "ziglang", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc"):
        parts.append(f"{name} {installed_version(name) or 'absent'}")
    for path in sources:
        parts += [path.relative_to(folder).as_posix(), path.read_bytes()]
    return digest(*parts)


def installed_version(distribution: str) -> str | None:
    """The version of a distribution; None where it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
