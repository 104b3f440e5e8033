"""docs/tutorial.md does what it says: its blocks run in order in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
#: A command block, or a block that the line above it has written to a file.
BLOCK = re.compile(r"(?:^(Write|Append to) `([^`]+)`:\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def script() -> str:
    """The page as one shell script: files become here-documents."""
    lines = ["set -e"]
    for verb, file, language, text in BLOCK.findall(PAGE):
        assert file or language == "sh", f"nothing says what the block is for:\n{text}"
        arrow = ">>" if verb == "Append to" else ">"
        lines.append(f"cat {arrow} {file} <<'END'\n{text}END" if file else text)
    return "\n".join(lines)


@pytest.mark.slow
def test_every_block_of_the_tutorial_runs(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "TILEC_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        ["sh", "-c", script()], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("all 300 values are 42\n")
    assert re.search(r"^\d+ cases: 0 failed", done.stderr, re.MULTILINE)
