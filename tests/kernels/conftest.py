"""Kernels in process are built into a cache of this run, for this CPU."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache_of_run(own_cache: Path) -> Path:
    """The folder of the cache, for all tests of this folder."""
    return own_cache
