"""Finding compiled variants in the cache without importing TVM or any kernel.

Two steps. The spec of a variant, with tilec's own digest, leads to the list of Python files that its kernel
loaded last time; the hashes of these files as they are now, with the spec, lead to the compiled variant.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from tilec.backends.base import backend_of
from tilec.build.records import CompiledVariant, decode, encode, spec_text
from tilec.build.reuse.kept_remarks import relative
from tilec.cache import Store, digest, toolchain_digest
from tilec.manifest import Variant

_SOURCES, _IMAGES = "sources", "image"


def find(store: Store, variant: Variant) -> CompiledVariant | None:
    """The compiled variant, when nothing that it was made from has changed."""
    data = find_entry(store, _IMAGES, variant, *_compiler(variant))
    return None if data is None else decode(data, variant)


def keep(store: Store, variant: Variant, compiled: CompiledVariant) -> None:
    """Stores a compiled variant. Raises OSError when the cache cannot be written."""
    keep_entry(store, _IMAGES, variant, compiled.files, encode(compiled, variant), *_compiler(variant))


def find_entry(store: Store, kind: str, variant: Variant, *more: str) -> bytes | None:
    """What was kept of a variant, and of ``more`` that it follows from, when none of it has changed."""
    spec = _spec_key(variant, more)
    listed = store.get(_SOURCES, spec)
    if listed is None:
        return None
    files = [variant.base / name for name in json.loads(listed)]
    key = _entry_key(spec, variant.base, {path: _file_digest(str(path), *_stamp(path)) for path in files})
    return store.get(kind, key) if key else None


def keep_entry(
    store: Store, kind: str, variant: Variant, files: Mapping[Path, str], data: bytes, *more: str
) -> None:
    """Stores what follows from a variant, ``files`` with digests of what was loaded of them, and ``more``;
    nothing where one is not known. Raises OSError when the cache cannot be written."""
    spec = _spec_key(variant, more)
    key = _entry_key(spec, variant.base, files)
    if key is None:
        return
    names = [relative(path, variant.base) for path in files]
    store.put(kind, key, data)
    store.put(_SOURCES, spec, json.dumps(names).encode())


def _spec_key(variant: Variant, more: Sequence[str]) -> str:
    return digest(toolchain_digest(), spec_text(variant), *more)


def _compiler(variant: Variant) -> list[str]:
    """What settings say about the compiler of its code."""
    return backend_of(variant.target).compiler_stamp()


def _entry_key(spec: str, base: Path, files: Mapping[Path, str]) -> str | None:
    """None when one of the files is gone, or its text is not known."""
    if not all(files.values()):
        return None
    return digest(spec, *(part for path, text in files.items() for part in (relative(path, base), text)))


def _stamp(path: Path) -> tuple[int, int]:
    try:
        state = path.stat()
    except OSError:
        return (0, 0)
    return (state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=1024)
def _file_digest(path: str, _mtime: int, _size: int) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""
