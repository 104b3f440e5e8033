"""Each file of the C runtime includes the headers of what it names, and stands on files before it alone."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tilec.package.library.runtime import runtime_folder

SOURCES = runtime_folder() / "src"
#: They hold a unit together.
TOPS = ("runtime.c", *(f"devices/{name}/{name}.c" for name in ("cuda", "hip", "metal")))
#: Files that share a header of their folder: the first word of their names is its name.
SHARED = ("cuda_", "hip_", "metal_", "system_")

#: It names the fields of the ABI, and no other name.
LEAVES = ("layout.h",)

INCLUDE = re.compile(r'^#include "([\w./]+)"', re.MULTILINE)
#: What a header declares, by how a line of it begins.
DECLARED = (
    re.compile(r"^#define (\w+)", re.MULTILINE),
    re.compile(r"^(?:LOCAL|LINKED|INLINE|static inline)\b[^;({]*?(\w+)\(", re.MULTILINE),
    re.compile(r"^} (\w+);", re.MULTILINE),
    re.compile(r"^typedef [^{;]*\(\*(\w+)\)\(", re.MULTILINE),
    re.compile(r"^typedef [^{;]*?(\w+);", re.MULTILINE),
    re.compile(r"^(?:static|LINKED_DATA) [^;(={]*?(\w+);", re.MULTILINE),
)
CONSTANTS = re.compile(r"^(?:typedef )?enum \w*\s*{([^}]*)}", re.MULTILINE)


def files(suffix: str) -> list[str]:
    """The runtime's files as they include each other: from its folder on."""
    return sorted(path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob(f"*{suffix}"))


@cache
def text(name: str) -> str:
    """A file without its comments, guard and forgotten macros."""
    held = re.sub(r"/\*.*?\*/", " ", (SOURCES / name).read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"^#(ifndef|undef) .*$", "", held, flags=re.MULTILINE)


def included(name: str) -> list[str]:
    return INCLUDE.findall(text(name))


@cache
def declared(header: str) -> frozenset[str]:
    names = {name for pattern in DECLARED for name in pattern.findall(text(header))}
    for body in CONSTANTS.findall(text(header)):
        names.update(part.split("=")[0].strip() for part in body.split(","))
    return frozenset(name for name in names if name not in ("", "X") and not name.endswith("_H_"))


def named(name: str) -> set[str]:
    """The headers of this runtime that declare what a file names."""
    words = set(re.findall(r"\w+", re.sub(r'"(?:\\.|[^"\\])*"', '""', text(name))))
    headers = set(files(".h")) if name not in LEAVES else set()
    return {header for header in headers - {name} if declared(header) & words}


def own_header(name: str) -> str:
    """The header of a .c file: its namesake, or the one that it shares with others."""
    base = Path(name).name
    header = f"{base.partition('_')[0]}.h" if base.startswith(SHARED) else f"{Path(name).stem}.h"
    return Path(name).with_name(header).as_posix()


def given(name: str) -> set[str]:
    """What a .c file has by its own header: that one, and what it includes."""
    own = own_header(name)
    return {own, *included(own)} if name.endswith(".c") and (SOURCES / own).exists() else set()


def test_a_file_includes_the_headers_of_what_it_names() -> None:
    names = [name for name in files(".[ch]") if name not in TOPS]
    assert len(names) > 40
    found = {
        name: {each for each in included(name) if each.endswith(".h")} - {own_header(name)} for name in names
    }
    wanted = {name: named(name) - given(name) for name in names}
    wrong = {name: (found[name] - wanted[name], wanted[name] - found[name]) for name in names}
    assert {name: each for name, each in wrong.items() if any(each)} == {}, "(without a use, missing)"


def test_a_file_stands_on_those_that_come_before_it() -> None:
    order = [name for name in included("runtime.c") if name.endswith(".c")]
    alone = {name for name in files(".c") if not Path(name).name.startswith(SHARED)}
    assert sorted(order) == sorted(alone - {*TOPS})
    owners = {own_header(name): place for place, name in enumerate(order)}
    later = [
        (name, header)
        for place, name in enumerate(order)
        for header in included(name)
        if owners.get(header, -1) > place
    ]
    assert later == []


def test_headers_form_no_circle() -> None:
    """Each name is taken off once all that it includes is gone; what is left goes round in circles."""
    left = {name: set(included(name)) for name in files(".h")}
    assert len(left) > 20
    while ready := [name for name, wanted in left.items() if not wanted & left.keys()]:
        for name in ready:
            del left[name]
    assert left == {}
