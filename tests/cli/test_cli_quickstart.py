from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilec.targets import native_host

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(native_host().arch != "x86_64", reason="the quickstart's manifest is for x86-64")
def test_the_quickstart_needs_no_system_compiler(tmp_path: Path) -> None:
    env = {**os.environ, "PATH": str(tmp_path), "TILEC_CACHE_DIR": str(tmp_path / "cache")}
    env.pop("TILEC_CC", None)
    command = [sys.executable, str(ROOT / "examples" / "quickstart.py")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "every result agrees with NumPy" in done.stdout
    assert "scale_add n=1000003" in done.stdout
