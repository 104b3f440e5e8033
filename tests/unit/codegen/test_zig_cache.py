"""Whether zig has its cache still to fill, which a first build says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.codegen.toolchain import zig_is_new_here


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
