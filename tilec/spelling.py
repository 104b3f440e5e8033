"""What somebody probably meant who wrote a name that is not known, and words beside numbers."""

from __future__ import annotations

from collections.abc import Iterable

#: The least likeness of a name that is offered, as difflib counts it.
_LEAST = 0.5


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


def counted(number: int, what: str, several: str = "") -> str:
    """``1 kernel``, ``3 kernels``; ``several``: the plural of a word that takes no s."""
    return f"{number} {what if number == 1 else several or what + 's'}"


def quoted(names: Iterable[str]) -> str:
    """Names as a page has them: "`a`, `b`"."""
    return ", ".join(f"`{name}`" for name in names)
