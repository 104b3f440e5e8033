"""Whether zig has its cache still to fill, which a first build says; and that tests fill it once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilec.codegen.toolchain import find_toolchain, zig_is_new_here

TESTS = Path(__file__).parents[2]
#: The C compiler asked by hand.
BY_HAND = re.compile(r'find_toolchain\(.*\)\.driver|"ziglang",\s"cc"')


@pytest.mark.parametrize(("name", "below"), [("ZIG_GLOBAL_CACHE_DIR", ""), ("XDG_CACHE_HOME", "zig")])
def test_an_empty_cache_is_new(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, below: str
) -> None:
    monkeypatch.delenv("TILEC_CC", raising=False)
    monkeypatch.delenv("ZIG_GLOBAL_CACHE_DIR", raising=False)
    monkeypatch.setenv(name, str(tmp_path))
    assert zig_is_new_here()
    (tmp_path / below / "o").mkdir(parents=True)
    assert not zig_is_new_here()


def test_another_compiler_fills_no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILEC_CC", "cc")
    assert not zig_is_new_here()


def test_one_file_links_the_programs_of_tests() -> None:
    """Other settings than those of libraries would have zig compile what it links with once more."""
    found = {path.name for path in TESTS.rglob("*.py") if BY_HAND.search(path.read_text(encoding="utf-8"))}
    assert found == {"linked.py", "test_escape.py"}  # the second one links nothing


def test_without_a_home_zig_is_told_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "ZIG_GLOBAL_CACHE_DIR", "TILEC_CC"):
        monkeypatch.delenv(name, raising=False)
    source = tmp_path / "one.c"
    source.write_text("int one(void) { return 1; }\n")
    assert find_toolchain().compile(source, tmp_path / "out").is_file()
