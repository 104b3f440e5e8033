"""Which Python files a kernel's source loads: what a cached image depends on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

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
    before = {name: sys.modules[name] for name in _names_below(roots)}
    for name in before:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in _names_below(roots):
            del sys.modules[name]
        sys.modules.update(before)


def loaded_files(source: str, base: Path) -> tuple[Path, ...]:
    """The kernel's source file and the author's files that are imported now, sorted."""
    roots = source_roots(source, base)
    own = source_file(source, base)
    found = {path for name in list(sys.modules) if (path := _file_below(name, roots)) is not None}
    return tuple(sorted({*found, *([own.resolve()] if own is not None else [])}))


def _names_below(roots: tuple[Path, ...]) -> list[str]:
    return [name for name in list(sys.modules) if _file_below(name, roots) is not None]


def _file_below(name: str, roots: tuple[Path, ...]) -> Path | None:
    """The file of an imported module when it lies below one of the roots and is no installed package."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if not file or not file.endswith(".py") or name.partition(".")[0] in ("tilec", "__main__", "__mp_main__"):
        return None
    path = _resolved(file)
    if path is None or not any(path.is_relative_to(root) for root in roots):
        return None
    return path


@cache
def _resolved(file: str) -> Path | None:
    """The path of a module's file without links; None for installed packages."""
    path = Path(file).resolve()
    return None if "site-packages" in path.parts else path
