"""Files and modules that pages and docstrings name are there."""

from __future__ import annotations

import re
from functools import reduce
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
FILE = re.compile(r"`((?:tilec|runtime_c|tests|benchmarks|examples|manifests)/[\w/.-]+\w/?)`")
NAME = re.compile(r"`(tilec(?:\.\w+)+)`")
PART = re.compile(r"`((?:\w+/)*\w+\.(?:py|[ch]))`")
#: A header of built packages.
BUILT = {"tilec/tilec.h", "tilec/tilec.hpp"}
#: Files that a reader of the pages writes.
READERS = {"call.py", "kernels/dense.py"}


def mentions(pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    """What the pages name, each once, with the first page."""
    found: dict[str, str] = {}
    for page in PAGES:
        for name in pattern.findall(page.read_text(encoding="utf-8")):
            found.setdefault(name, page.name)
    return [(page, name) for name, page in sorted(found.items())]


@pytest.mark.parametrize(("page", "name"), mentions(FILE))
def test_a_file_is_there(page: str, name: str) -> None:
    assert name in BUILT or (ROOT / name).exists(), f"{page} names {name}"


@pytest.mark.parametrize(("page", "name"), mentions(NAME))
def test_a_module_or_what_it_holds_is_there(page: str, name: str) -> None:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            module = import_module(".".join(parts[:length]))
        except ImportError:
            continue
        assert reduce(getattr, parts[length:], module) is not None
        return
    raise AssertionError(f"{page} names {name}")


def test_a_file_that_is_named_in_short_is_there() -> None:
    """`vectors.py`, `emit/load.py`: how the path of some file ends."""
    folders = ("tilec", "runtime_c", "tests", "benchmarks", "examples", "tools")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.*")]
    parts = [path.relative_to(ROOT).parts for path in paths]
    ends = {"/".join(each[start:]) for each in parts for start in range(len(each))}
    texts = [*PAGES, *(path for path in paths if path.suffix in (".py", ".c", ".h") and path.is_file())]
    named = {
        (text.relative_to(ROOT).as_posix(), name)
        for text in texts
        for name in PART.findall(text.read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    assert sorted((text, name) for text, name in named if name not in ends | BUILT | READERS) == []


def sources() -> dict[str, str]:
    """The text of every module, by the name that it is imported by."""
    found = {}
    for path in ROOT.glob("tilec/**/*.py"):
        parts = [part for part in path.relative_to(ROOT).with_suffix("").parts if part != "__init__"]
        found[".".join(parts).replace(".compat.", ".")] = path.read_text(encoding="utf-8")
    return found


def test_what_docstrings_name_is_there() -> None:
    texts = sources()

    def is_there(name: str) -> bool:
        module, _, rest = next(
            (name[:at], ".", name[at + 1 :])
            for at in (len(name), *(dot.start() for dot in reversed(list(re.finditer(r"\.", name)))))
            if name[:at] in texts
        )
        return all(re.search(rf"\b{part}\b", texts[module]) for part in rest.split(".") if part)

    named = {(home, name) for home, text in texts.items() for name in NAME.findall(text)}
    stale = sorted(f"{home}: {name}" for home, name in named if not is_there(name))
    assert not stale, "\n".join(stale)
