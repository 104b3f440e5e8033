"""tilec itself on this machine, where TVM is installed: the checks of inprocess/, each in a process of its
own that cannot outlive its time."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
#: Seconds that each check may take.
_PATIENCE = {
    "machine": 60,
    "report": 60,
    "jit": 120,
    "compile": 60,
    "par_compile": 300,
    "autotune": 120,
    "tune": 180,
}


def missing() -> str:
    """Why there is nothing to check; empty where there is."""
    if not (HERE / "source").exists():
        return "the folder was made without tilec's sources"
    absent = [name for name in ("tvm", "torch", "pydantic") if importlib.util.find_spec(name) is None]
    return f"{', '.join(absent)} is not installed" if absent else ""


def check(device: str = "cuda", names: tuple[str, ...] = tuple(_PATIENCE)) -> dict[str, dict[str, Any]]:
    """What every check saw, by name; "ok" says whether it was right."""
    return {name: _run(name, device) for name in names}


def _run(name: str, device: str) -> dict[str, Any]:
    command = [sys.executable, str(HERE / "inprocess" / "checks.py"), "--device", device, name]
    with tempfile.TemporaryDirectory() as folder:
        paths = os.pathsep.join([str(HERE / "source"), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": paths, "TILEC_CACHE_DIR": folder, "TILEC_TARGET": device}
        with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                command, env=environment, stdout=said, stderr=errors, start_new_session=True
            )
            code = _wait(process, _PATIENCE[name])
            said.seek(0)
            errors.seek(0)
            return _result(code, said.read(), errors.read())


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """The exit code, None where it had to be stopped; no process that it started goes on."""
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        code = None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return code


def _result(code: int | None, said: str, errors: str) -> dict[str, Any]:
    lines = said.strip().splitlines()
    if lines and lines[-1].startswith("{"):
        return dict(json.loads(lines[-1]))
    ended = "it did not end in time" if code is None else f"exit code {code}"
    return {"ok": False, "problem": f"{ended}\n{errors[-1500:]}"}
