"""Kernels in the cache: a library and its card per key."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from tilec.cache import Store, installed_version
from tilec.inprocess.compilation.building import Card
from tilec.settings import read_settings

_KIND = "kernel"
#: What compiles a kernel, by the name under which a card keeps its version.
_TOOLS = {"tvm": "apache-tvm", "zig": "ziglang"}
_enabled = True


def enable_cache() -> None:
    """Kernels are kept in, and taken from, the cache on disk again."""
    global _enabled
    _enabled = True


def disable_cache() -> None:
    """From now on every kernel of this process is compiled anew."""
    global _enabled
    _enabled = False


def is_cache_enabled() -> bool:
    """Whether kernels are taken from the cache: also False under TILEC_CACHE=0."""
    return _enabled and read_settings().cache


def find(key: str) -> tuple[Card, Path] | None:
    """A kernel of the cache, marked as used; None when it is missing, damaged, or was made by another version
    of a compiler that is installed here. A machine without the compilers takes what it finds."""
    data = _cards().get(_KIND, key)
    if data is None:
        return None
    path, (wanted, card) = _library(key), (data[:64].decode(), Card.decode(data[64:]))
    try:
        if hashlib.sha256(path.read_bytes()).hexdigest() != wanted or not _same_tools(card):
            return None
        os.utime(path)
    except OSError:
        return None
    return card, path


def has(key: str) -> bool:
    """Whether a kernel lies in the cache, damaged or not."""
    return _library(key).exists()


def keep(key: str, card: Card, path: Path) -> None:
    """Writes the card of a library that lies in its place: whoever finds the card finds the library."""
    if path != _library(key):
        return
    with contextlib.suppress(OSError):
        made = hashlib.sha256(path.read_bytes()).hexdigest().encode()
        _cards().put(_KIND, key, made + card.encode())
        _cards().grew(path.stat().st_size)


def library_path(key: str) -> Path:
    """Where a kernel's library goes, with its folder made: in the cache, or in a folder of its own where
    there is no cache or it cannot be written."""
    path = _library(key)
    try:
        if not is_cache_enabled():
            raise PermissionError
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            return path
    except OSError:
        folder = read_settings().temporary
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="tilec-", dir=folder), "kernel.so")


def _cards() -> Store:
    return Store(read_settings().cache_dir)


def _libraries() -> Path:
    return _cards().folder("library")


def _library(key: str) -> Path:
    return _libraries() / key[:2] / f"{key}.so"


def _same_tools(card: Card) -> bool:
    return all(
        installed_version(_TOOLS[tool]) in (None, version)
        for tool, version in card.tools.items()
        if tool in _TOOLS
    )
