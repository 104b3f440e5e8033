"""What `make release` demands beside what it runs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "release", Path(__file__).parents[2] / "tools" / "release.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_tag_names_the_version(release: ModuleType) -> None:
    release.require_tags("1.2.3", [])
    release.require_tags("1.2.3", ["v1.2.3"])
    with pytest.raises(SystemExit, match=r"is tagged v1.2.4, and its version is 1.2.3; .*__init__.py"):
        release.require_tags("1.2.3", ["v1.2.3", "v1.2.4"])
