"""Which Python files a kernel's source loads: what a cached image depends on."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

from tilec.manifest.sources import source_file


def source_roots(source: str, base: Path) -> tuple[Path, ...]:
    """The folders whose files count as the author's: the manifest's and the source file's."""
    path = source_file(source, base)
    folders = [base.resolve(), *([path.resolve().parent] if path is not None else [])]
    return tuple(dict.fromkeys(folders))


@contextmanager
def author_modules_afresh(source: str, base: Path) -> Iterator[None]:
    """In the block, imports load the author's modules again, so that `loaded_files` is exact and a changed
    file counts; afterwards the modules that were there before are back."""
    roots = source_roots(source, base)
    before = {name: sys.modules[name] for name in _author_files(roots)}
    for name in before:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in _author_files(roots):
            del sys.modules[name]
        sys.modules.update(before)


def loaded_files(source: str, base: Path, since: int) -> dict[Path, str]:
    """The kernel's source file and the author's files that are imported now, sorted, each with the sha256 of
    its text; "" for one that was written after ``since`` (`time.time_ns`), when imports began: which text was
    imported nobody knows."""
    found = set(_author_files(source_roots(source, base)).values())
    own = source_file(source, base)
    return {path: _sha256(path, since) for path in sorted({*found, *([own.resolve()] if own else [])})}


def _sha256(path: Path, since: int) -> str:
    try:
        text, written = path.read_bytes(), path.stat().st_mtime_ns
    except OSError:
        return ""
    return "" if written > since else hashlib.sha256(text).hexdigest()


def _author_files(roots: tuple[Path, ...]) -> dict[str, Path]:
    """The files of the imported modules that lie below one of the roots, by the modules' names."""
    others = _others(roots)
    found = {}
    for name, module in list(sys.modules.items()):
        if others.get(name) is module:
            continue
        path = _author_file(name, getattr(module, "__file__", None) or "", roots)
        if path is None:
            others[name] = module
        else:
            found[name] = path
    return found


@cache
def _others(_roots: tuple[Path, ...]) -> dict[str, ModuleType]:
    """The modules that are known to be nobody's below these roots: every loaded module is asked about for
    every variant."""
    return {}


def _author_file(name: str, file: str, roots: tuple[Path, ...]) -> Path | None:
    """The path of a module's file without links; None for what is installed, tilec's own, or not below the
    roots."""
    if not file.endswith(".py") or name.partition(".")[0] in ("tilec", "__main__", "__mp_main__"):
        return None
    if _is_installed(file):
        return None
    path = Path(file).resolve()
    return path if any(path.is_relative_to(root) for root in roots) else None


@cache
def _is_installed(file: str) -> bool:
    """Whether a file is a package's: most modules are, and each new pair of roots asks about all of them."""
    return "site-packages" in Path(file).resolve().parts
