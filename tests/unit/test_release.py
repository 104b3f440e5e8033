"""What `make release` demands beside what it runs."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from example_modules import module_of


@pytest.fixture(scope="module")
def release() -> ModuleType:
    return module_of(Path(__file__).parents[2] / "tools" / "release.py", "release")


def test_a_tag_names_the_version(release: ModuleType) -> None:
    release.require_tags("1.2.3", [])
    release.require_tags("1.2.3", ["v1.2.3"])
    with pytest.raises(SystemExit, match=r"is tagged v1.2.4, and its version is 1.2.3; .*__init__.py"):
        release.require_tags("1.2.3", ["v1.2.3", "v1.2.4"])
