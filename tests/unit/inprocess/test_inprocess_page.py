"""The kernels of docs/in-process.md run, and compute what the page lets one expect."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parents[3] / "docs" / "in-process.md"


def test_the_first_block_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[
        0
    ]
    module = tmp_path / "page.py"
    module.write_text(block)
    monkeypatch.setenv("TILEC_TARGET", "cpu")
    x = np.arange(1 << 20, dtype="float32")
    made = runpy.run_path(str(module), {"x": x})
    np.testing.assert_array_equal(made["y"], 2 * x)
    np.testing.assert_array_equal(made["z"], 2 * x)
