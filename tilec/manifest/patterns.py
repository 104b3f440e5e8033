"""Which kernels `--kernel` means."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from tilec.errors import InputError, Place
from tilec.manifest.problems import suggestion


def kernels_meant(patterns: Collection[str], names: Iterable[str], path: Path) -> set[str]:
    """The ``names`` of kernels that one of the globs means. Raises InputError for a glob that means none of
    them; ``path`` is of the manifest or the library that has them."""
    known = list(names)
    found: set[str] = set()
    for pattern in patterns:
        meant = [name for name in known if fnmatchcase(name, pattern)]
        if not meant:
            what = f'no kernel matches "{pattern}"'
            raise InputError(what, place=Place(str(path)), remedy=suggestion(pattern, known))
        found.update(meant)
    return found
