"""The cases under compute-sanitizer: out-of-bounds and misaligned accesses (memcheck), races between the
threads of a block on shared memory (racecheck), barriers that not all meet who have to (synccheck). Tensors
have no margins here, so that an access past one is seen."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TOOLS = ("memcheck", "racecheck", "synccheck")
#: Kernels that a tool cannot judge: racecheck does not see that threads have met before one arrives for them.
_BLIND = {"racecheck": "elected_*"}
_PATIENCE = 300.0  # seconds of one tool
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:errors?|hazards?)")
_PLACE = re.compile(r"(?: at |in )(?:[^ ]*::)?(\w+?_\d+)(?:\+0x|\()")
_MOST_LINES = 60


def sanitize(kernels: list[str], most: int) -> dict[str, Any]:
    """By tool: how many errors, in which kernels, the cases run, and the first lines of what it said, of
    ``kernels`` without those that it cannot judge. ``most``: cases of a variant. A tool that misses the fault
    of planted.py, or under which no case ran or one went wrong, has no number of errors."""
    program = shutil.which("compute-sanitizer")
    if program is None:
        return {tool: {"errors": None, "text": "compute-sanitizer is not on the PATH"} for tool in TOOLS}
    with ThreadPoolExecutor(len(TOOLS)) as pool:
        found = pool.map(lambda tool: _check(program, tool, kernels, most), TOOLS)
        return dict(zip(TOOLS, found, strict=True))


def _check(program: str, tool: str, kernels: list[str], most: int) -> dict[str, Any]:
    command = [program, "--tool", tool, "--print-limit", "200", sys.executable]
    planted = _run([*command, str(HERE / "planted.py"), tool])
    if not planted["errors"]:
        return {**planted, "errors": None, "text": f"{tool} missed a planted fault\n{planted['text']}"}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "verify.json"
        options = ["--once", "--margin", "0", "--cases", str(most), "--json", str(report)]
        judged = [kernel for kernel in kernels if not fnmatch(kernel, _BLIND.get(tool, ""))]
        options += [text for kernel in judged for text in ("--kernel", kernel)]
        found = _run([*command, str(HERE / "run.py"), "--only", "verify", *options])
        said = json.loads(report.read_text()) if report.exists() else {"verify": [], "problems": []}
    if found["errors"] == 0 and (said["problems"] or not said["verify"]):
        text = "\n".join(said["problems"]) or f"no case ran under {tool}\n{found['output']}"
        return {**found, "errors": None, "text": text}
    return {**found, "cases": len(said["verify"])}


def _run(command: list[str]) -> dict[str, Any]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        return {"errors": None, "text": f"no end within {_PATIENCE:.0f} s", "output": ""}
    text = done.stdout + done.stderr
    found = _SUMMARY.search(text)
    lines = [line for line in text.splitlines() if line.startswith("=====") or "WRONG" in line]
    return {
        "errors": int(found.group(1)) if found else None,
        "kernels": sorted(set(_PLACE.findall(text))),
        "text": "\n".join(lines[:_MOST_LINES]) if found else text[-3000:],
        "output": text[-3000:],
    }
