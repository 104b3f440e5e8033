"""What somebody meant who wrote a name that is not known, or a glob, and words beside numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from tilec.errors import InputError, Place

if TYPE_CHECKING:
    from pathlib import Path

#: The least likeness of a name that is offered, as difflib counts it.
_LEAST = 0.5
#: More names than these are told by those that are most alike, so many of them.
_ALL, _ALIKE = 40, 12


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like ``name``; capitals count only where nothing else differs."""
    import difflib

    by_letters: dict[str, list[str]] = {}
    for one in known:
        by_letters.setdefault(one.casefold(), []).append(one)
    found = difflib.get_close_matches(name.casefold(), by_letters, n=1, cutoff=_LEAST)
    return by_letters[found[0]][0] if found else None


def alike(name: str, known: Iterable[str], count: int) -> list[str]:
    """So many of the known names, those that are most like ``name`` first."""
    import difflib

    return difflib.get_close_matches(name, list(known), n=count, cutoff=0.0)


def suggestion(name: str, known: Iterable[str]) -> str:
    """A remedy: the nearest of the known names, and all of them, or of many those that are most like it."""
    names = list(known)
    near = nearest(name, names)
    hint = f'did you mean "{near}"? ' if near else ""
    told = names if len(names) <= _ALL else alike(name, names, _ALIKE)
    others = f" and {len(names) - len(told)} others" if len(told) < len(names) else ""
    return f"{hint}known here: {', '.join(told) or 'nothing'}{others}"


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


def counted(number: int, what: str, several: str = "") -> str:
    """``1 kernel``, ``3 kernels``; ``several``: the plural of a word that takes no s."""
    return f"{number} {what if number == 1 else several or what + 's'}"


def quoted(names: Iterable[str]) -> str:
    """Names as a page has them: "`a`, `b`"."""
    return ", ".join(f"`{name}`" for name in names)
