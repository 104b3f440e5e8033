from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tune_samples import HEAD, TWICE, InThreads


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """``manifest(tune, kernel=TWICE)`` writes and returns a manifest with a cache of its own."""
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "cache"))

    def write(tune: str = "", kernel: str = TWICE) -> Path:
        path = tmp_path / "demo.toml"
        path.write_text(HEAD + kernel + ("\n[kernel.tune]\n" + tune if tune else ""))
        return path

    return write


@pytest.fixture
def backend() -> Any:
    return InThreads()
