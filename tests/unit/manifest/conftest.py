from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

HEAD = """\
edition = 1

[package]
name = "demo"

[targets]
cpu = ["x86-64-v2", "x86-64-v3"]
host = "x86_64-linux-gnu.2.17"
"""


@pytest.fixture
def head() -> str:
    """The tables before the kernels."""
    return HEAD


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Path]:
    """``project(kernels, head=HEAD)`` writes and returns a manifest beside an empty kernel source."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "gemm.py").write_text("")

    def write(kernels: str, head: str = HEAD) -> Path:
        path = tmp_path / "demo.toml"
        path.write_text(head + kernels)
        return path

    return write
