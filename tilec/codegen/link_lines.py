"""How zig's driver calls its linker, so that the next library is linked without the driver.

Before each link `zig cc` looks through thousands of files of what it might have to compile first
(compiler-rt, the stubs of a glibc), for 25 to 70 ms; the linker takes 7. With ``-v`` it says what it calls,
and the same call with other objects gives the same bytes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilec.cache import Store
from tilec.codegen.linkers import SharedLibrary
from tilec.settings import read_settings

_KIND = "link"
#: zig's name for its linker of ELF files: those of other systems it links otherwise.
LINKER = "ld.lld"
#: What stands in a line for the objects, the library, the name that programs look for, and its exports.
_OBJECTS, _PATH, _LOADED, _EXPORTS = "@objects", "@path", "@loaded", "@exports"
#: The lines that this process has met, by their keys; None where the driver says none.
_met: dict[str, LinkLine | None] = {}


@dataclass(frozen=True)
class LinkLine:
    """Arguments of the linker, with words in place of what differs from library to library."""

    words: tuple[str, ...]

    @staticmethod
    def said(text: str, objects: Sequence[Path], wanted: SharedLibrary) -> LinkLine | None:
        """The last of the lines with which a driver says what it calls; None where it says none of this form,
        such as one with spaces in paths."""
        lines = [line for line in text.splitlines() if line.startswith(f"{LINKER} ")]
        words = lines[-1].split(" ")[1:] if lines else []
        first, own = str(objects[0]), [str(each) for each in objects]
        at = words.index(first) if first in words else 0
        if words[at : at + len(own)] != own:
            return None
        words[at : at + len(own)] = [_OBJECTS]
        places = {str(wanted.path): _PATH, wanted.loaded: _LOADED, str(wanted.script): _EXPORTS}
        line = LinkLine(tuple(places.get(word, word) for word in words))
        whole = all(line.words.count(word) == 1 for word in (_OBJECTS, *places.values()))
        return line if whole and line.is_there else None

    @property
    def is_there(self) -> bool:
        """Whether the files that it names beside those of a library are there."""
        return all(Path(word).exists() for word in self.words if word.startswith("/"))

    def arguments(self, objects: Sequence[Path], wanted: SharedLibrary) -> list[str]:
        """Those that link a library of ``objects``."""
        values = {
            _OBJECTS: [str(each) for each in objects],
            _PATH: [str(wanted.path)],
            _LOADED: [wanted.loaded],
            _EXPORTS: [str(wanted.script)],
        }
        return [part for word in self.words for part in values.get(word, [word])]


def known_line(key: str) -> LinkLine | None:
    """The line of a key: one that this process has met, else the cache's; None where there is none, or what
    it names is gone."""
    if key not in _met:
        store = _store()
        kept = store.get(_KIND, key) if store else None
        if kept is None:
            return None
        _met[key] = LinkLine(tuple(json.loads(kept)))
    line = _met[key]
    return line if line is not None and line.is_there else None


def says_none(key: str) -> bool:
    """Whether the driver of a key has been asked for a line in vain."""
    return key in _met and _met[key] is None


def keep_line(key: str, line: LinkLine | None) -> None:
    """Keeps the line of a key: in this process, and where the cache can be written, there."""
    _met[key] = line
    store = _store()
    if line is not None and store:
        with contextlib.suppress(OSError):
            store.put(_KIND, key, json.dumps(line.words).encode())


def _store() -> Store | None:
    settings = read_settings()
    return Store(settings.cache_dir) if settings.cache else None
