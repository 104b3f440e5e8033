"""docs/abi.md covers every public function: of tilec.h, of a generated header, of the library's symbols;
docs/bindings.md those of the C++ header."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from records import kernel, spec, tensor, variant

from tilec.package.bindings.c import header_source
from tilec.package.bindings.cpp import cpp_header_source
from tilec.package.bindings.doors import public_symbols

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "abi.md").read_text(encoding="utf-8")
BINDINGS = (ROOT / "docs" / "bindings.md").read_text(encoding="utf-8")
HEADER = (ROOT / "runtime_c" / "include" / "tilec" / "tilec.h").read_text(encoding="utf-8")
LABELS = ["Ownership", "Threads", "Lifetime", "Failure", "Versions"]
LIBRARY = spec(kernel([tensor("a", "M")], ["M"], variant("only")))


def entries() -> dict[str, str]:
    """The entries of the section on functions, by name."""
    section = PAGE.partition("## Every function\n")[2].partition("\n## ")[0]
    parts = re.split(r"^### `(.+)`$", section, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def on_the_page(symbol: str) -> str:
    """A symbol of `LIBRARY` as the page writes it."""
    name = LIBRARY.kernels[0].name
    text = re.sub(rf"\b(__tvm_ffi_)?{LIBRARY.name}_{name}\b", r"\1llm_<kernel>", symbol)
    text = re.sub(rf"\b{LIBRARY.name}_{name}_", "llm_<kernel>_", text)
    return re.sub(rf"^{LIBRARY.name}_", "llm_", text)


def public_functions() -> set[str]:
    """Members and types of tilec.h that are functions, prototypes of a generated header, exported symbols."""
    members = re.findall(r"^  [a-z][\w *]*\(\*(\w+)\)\(", HEADER, re.MULTILINE)
    types = re.findall(r"^typedef [^;]*\(\*(\w+)\)\(", HEADER, re.MULTILINE)
    prototypes = re.findall(r"^[a-z][\w *]*[ *](\w+)\(", header_source(LIBRARY, "id"), re.MULTILINE)
    symbols = public_symbols(LIBRARY.name, [each.name for each in LIBRARY.kernels])
    assert len(members) >= 9
    assert len(types) >= 4
    assert len(prototypes) == 5
    return {*members, *types, *map(on_the_page, (*prototypes, *symbols))} - {"tilec_library_query_fn"}


def test_every_function_has_an_entry_and_no_other() -> None:
    assert set(entries()) == public_functions()
    assert "tilec_library_query_fn" in entries()["tilec_library_query"], "the type of that function"


@pytest.mark.parametrize("name", sorted(entries()))
def test_every_entry_says_what_a_stranger_asks(name: str) -> None:
    text = entries()[name]
    assert re.findall(r"^- (\w+): \S", text, re.MULTILINE) == LABELS
    assert len(text.strip().splitlines()[0]) > 20, "what it does comes first"


def test_functions_of_the_cpp_header_are_on_the_page() -> None:
    section = BINDINGS.partition("## From C++17\n")[2].partition("\n## ")[0]
    defined = set(re.findall(r"^inline [^(]*?(\w+)\(", cpp_header_source(LIBRARY), re.MULTILINE))
    assert defined == {
        "library",
        "check_build",
        LIBRARY.kernels[0].name,
        f"{LIBRARY.kernels[0].name}_workspace",
    }
    for name in defined:
        shown = name.replace(LIBRARY.kernels[0].name, "matmul")
        assert f"llm::{shown}(" in section, name


def test_every_status_of_the_header_is_on_the_page() -> None:
    named = re.findall(r"^  (TILEC_ERR_\w+) =", HEADER, re.MULTILINE)
    shorts = [name.removeprefix("TILEC_ERR") for name in named if name != "TILEC_ERR_INTERNAL"]
    assert len(shorts) > 12
    assert [short for short in shorts if short not in PAGE] == []
