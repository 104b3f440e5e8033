"""Workflows are what GitHub takes for such."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / ".github" / "workflows"


def test_workflows_follow_the_schema() -> None:
    pytest.importorskip("check_jsonschema", reason="check-jsonschema is not installed")
    files = sorted(map(str, FOLDER.glob("*.yml")))
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
        *files,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert files
    assert done.returncode == 0, done.stdout + done.stderr
