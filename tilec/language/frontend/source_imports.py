"""Imports of the author's files by their text: bytecode that others left counts for nothing, and a text is
compiled once, however many variants import it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any


@contextmanager
def by_text(folders: Sequence[Path]) -> Iterator[None]:
    """In the block, what is imported of files below ``folders`` is made of their text as it is now. Packages
    that are installed there are loaded as ever."""
    finder = _Finder(folders)
    # Behind what others have in front of Python's search along the path, which it stands for
    at = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
    sys.meta_path.insert(at, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@lru_cache(maxsize=64)
def compiled(text: bytes, file: str) -> CodeType:
    """The code of a file with this text, which runs for every variant of a kernel."""
    return compile(text, file, "exec", dont_inherit=True)


class _Finder:
    """Python's search along the path, whose files of the author's get another loader."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader and self._is_authors(spec.origin):
            spec.loader = _TextLoader(name, spec.loader.path)
        return spec

    def _is_authors(self, file: str | None) -> bool:
        place = Path(file or "").resolve()
        if "site-packages" in place.parts:
            return False
        return any(place.is_relative_to(folder) for folder in self._folders)


class _TextLoader(SourceFileLoader):
    """Never looks for bytecode."""

    def get_code(self, fullname: str) -> Any:
        return compiled(self.get_data(self.path), self.path)
