"""The cases under compute-sanitizer: out-of-bounds and misaligned accesses (memcheck), races between the
threads of a block on shared memory (racecheck). Tensors have no margins here, so that an access past one is
seen."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TOOLS = ("memcheck", "racecheck")
_PATIENCE = 300.0  # seconds of one tool
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:errors?|hazards?)")
_PLACE = re.compile(r"(?: at |in )(?:[^ ]*::)?(\w+?_\d+)(?:\+0x|\()")
_MOST_LINES = 60


def sanitize(kernels: list[str], most: int) -> dict[str, Any]:
    """By tool: how many errors, in which kernels, and the first lines of what it said. ``most``: cases of a
    variant."""
    program = shutil.which("compute-sanitizer")
    if program is None:
        return {tool: {"errors": None, "text": "compute-sanitizer is not on the PATH"} for tool in TOOLS}
    with ThreadPoolExecutor(len(TOOLS)) as pool:
        return dict(zip(TOOLS, pool.map(lambda tool: _run(program, tool, kernels, most), TOOLS), strict=True))


def _run(program: str, tool: str, kernels: list[str], most: int) -> dict[str, Any]:
    command = [program, "--tool", tool, "--print-limit", "200", "--kernel-name", "regex:.*", sys.executable]
    options = [text for kernel in kernels for text in ("--kernel", kernel)]
    script = [
        str(HERE / "run.py"),
        "--only",
        "verify",
        "--margin",
        "0",
        "--cases",
        str(most),
        "--json",
        f"{tool}.json",
    ]
    try:
        done = subprocess.run(
            [*command, *script, *options], capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
    except subprocess.TimeoutExpired:
        return {"errors": None, "text": f"no end within {_PATIENCE:.0f} s"}
    text = done.stdout + done.stderr
    found = _SUMMARY.search(text)
    lines = [line for line in text.splitlines() if line.startswith("=====") or "WRONG" in line]
    return {
        "errors": int(found.group(1)) if found else None,
        "kernels": sorted(set(_PLACE.findall(text))),
        "text": "\n".join(lines[:_MOST_LINES]) if found else text[-3000:],
    }
