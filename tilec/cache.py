"""A content-addressed store on disk, safe under many processes.

An entry is written aside and renamed into place, so a reader sees all of it or nothing. Entries are never
changed, only replaced; a damaged one reads as missing. The store lives under ``TILEC_CACHE_DIR``. Beyond
``TILEC_CACHE_LIMIT`` bytes the entries that were read or written longest ago go: a reader then finds them
missing, and what is being written has no name yet that would be looked at.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tilec.settings import read_settings

_LAYOUT = "v1"
_DIGEST_BYTES = 32
#: Eviction goes on until this share of the limit is used, so that it does not run at every new entry.
_KEPT = 0.8
#: The share of the limit that one process may put before it looks again.
_SLACK = 1 / 16
#: Bytes put by this process since it last looked, by the root of a store.
_GROWTH: dict[Path, int] = {}


@dataclass(frozen=True)
class CacheInfo:
    """What a store holds: ``entries`` files of ``size`` bytes in all. It keeps ``limit`` bytes, 0 for any
    number."""

    path: Path
    entries: int
    size: int
    limit: int


@dataclass(frozen=True)
class Store:
    """A store below ``root``. ``kind`` separates what is stored ("image", "sources", "package")."""

    root: Path

    def get(self, kind: str, key: str) -> bytes | None:
        """The bytes of an entry; None when it is missing or damaged."""
        path = self._path(kind, key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        with contextlib.suppress(OSError):  # a cache of somebody else's
            os.utime(path)
        digest, payload = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        return payload if hashlib.sha256(payload).digest() == digest else None

    def put(self, kind: str, key: str, payload: bytes) -> None:
        """Stores an entry. Raises OSError when the folder cannot be written or the disk is full."""
        path = self._path(kind, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, hashlib.sha256(payload).digest() + payload)
        self.grew(len(payload))

    def grew(self, size: int) -> None:
        """Counts ``size`` bytes that this process has put into the store, and keeps to the limit: it looks at
        all entries at the first call, and again when this process has put a share of the limit."""
        limit, first = read_settings().cache_limit, self.root not in _GROWTH
        _GROWTH[self.root] = _GROWTH.get(self.root, 0) + size
        if limit and (first or _GROWTH[self.root] > limit * _SLACK):
            _GROWTH[self.root] = 0
            self.trim(limit)

    def trim(self, limit: int) -> None:
        """Removes what was used longest ago while all entries take more than ``limit`` bytes."""
        entries = self._entries()
        total = sum(stat.st_size for stat, _ in entries)
        if total <= limit:
            return
        for stat, path in sorted(entries, key=lambda entry: entry[0].st_mtime_ns):
            if total <= limit * _KEPT:
                return
            path.unlink(missing_ok=True)
            total -= stat.st_size

    def info(self) -> CacheInfo:
        """Counts the entries."""
        sizes = [stat.st_size for stat, _ in self._entries()]
        return CacheInfo(self.root, len(sizes), sum(sizes), read_settings().cache_limit)

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

    def _entries(self) -> list[tuple[os.stat_result, Path]]:
        """Every entry; hidden files and folders are still being written, others may go while we look."""
        found = []
        for folder, inner, names in os.walk(self.root / _LAYOUT):
            inner[:] = [name for name in inner if not name.startswith(".")]
            for path in (Path(folder, name) for name in names if not name.startswith(".")):
                with contextlib.suppress(FileNotFoundError):
                    found.append((path.stat(), path))
        return found


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
