from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tilec.cache import Store


def test_cache_shows_and_clears(tilec: Callable, tmp_path: Path) -> None:
    Store(tmp_path / "cache").put("image", "ab12", b"x" * 2000)
    assert "1 entries, 2.0 KB (at most 4.3 GB: TILEC_CACHE_LIMIT)" in tilec("cache").out
    assert json.loads(tilec("cache", "info", "--json").out)["limit"] == 4 << 30
    assert json.loads(tilec("cache", "info", "--json").out)["entries"] == 1
    assert "removed 1 entries" in tilec("cache", "clear").out
    assert json.loads(tilec("cache", "info", "--json").out)["entries"] == 0
