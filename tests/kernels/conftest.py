"""Kernels in process are built into a cache of this run, for this CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the cache."""
    folder = tmp_path_factory.mktemp("kernels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEC_CACHE_DIR", str(folder))
        patch.setenv("TILEC_TARGET", "cpu")
        for name in [name for name in os.environ if name.startswith("TILELANG_")]:
            patch.delenv(name)
        yield folder
