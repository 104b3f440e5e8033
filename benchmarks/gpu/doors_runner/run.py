"""Calls the library of this folder through every door for frameworks, and compares with torch.

    python3 run.py [--device cpu] [--only GROUP]... [--seconds N] [--json FILE]

A group of checks is a process of its own, and all groups run at a time: one that dies or takes too long costs
itself. A line for each check: "ok", "FAILED" with the error, "left out" with what this machine lacks. Exit
code 1: a check failed, and the tracebacks are on stderr. Needs torch, and a C++ compiler for what is compiled
here; JAX where that is to be called, too.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
#: Seconds from what a process tells of where it is to its end, and how faulthandler begins with it.
_BEFORE_THE_END, _DUMP = 5, "Timeout ("
#: Around a traceback among what a group writes to its stderr.
_MARK, _END = "\n---- ", "\n----\n"
#: Modules of this folder whose checks are a group.
GROUPS = (
    "calls",
    "streams",
    "captured",
    "compiled",
    "native",
    "exported",
    "programs",
    "hub",
    "jax_calls",
    "jax_graphs",
)


def main() -> None:
    """All groups, or as their process the checks of one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", action="append", choices=GROUPS, help="these groups alone; repeatable")
    parser.add_argument("--seconds", type=float, default=90, help="the most that a group may take")
    parser.add_argument("--json", type=Path, default=HERE / "doors.json")
    parser.add_argument("--group", choices=GROUPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.group:
        faulthandler.dump_traceback_later(max(options.seconds - _BEFORE_THE_END, 1))
        run_group(options.group, options.device, options.json)
        return
    records = run_groups(options.only or GROUPS, options.device, options.seconds)
    options.json.write_text(json.dumps({"machine": machine(options.device), "checks": records}, indent=1))
    counts = Counter(each["state"] for each in records)
    print(", ".join(f"{counts[state]} {state}" for state in ("ok", "FAILED", "left out")))
    sys.exit(1 if counts["FAILED"] else 0)


def run_groups(groups: Sequence[str], device: str, seconds: float) -> list[dict[str, Any]]:
    """What the checks of all groups found; a group that did not come to its end is a failure, too."""
    end = time.monotonic() + seconds
    found = []
    with tempfile.TemporaryDirectory() as folder:
        started = [Group(name, device, seconds, Path(folder, name)) for name in groups]
        for group in started:
            problem = group.problem(end)
            found += group.records()
            print(group.tracebacks(), file=sys.stderr, end="")
            if problem:
                found.append(record(group.name, "came to its end", "FAILED", problem))
    return found


class Group:
    """The process of a group, which writes its records to ``file`` and its errors beside it; shortly before
    its ``seconds`` are over, where it is, too."""

    def __init__(self, name: str, device: str, seconds: float, file: Path) -> None:
        self.name, self._file, self._errors = name, file, file.with_suffix(".errors")
        command = [sys.executable, __file__, "--group", name, "--device", device, "--json", str(file)]
        command += ["--seconds", str(seconds)]
        with open(self._errors, "w") as errors:
            self._process = subprocess.Popen(command, stderr=errors, start_new_session=True)

    def problem(self, end: float) -> str:
        """What is wrong with how the process ended; empty where nothing is. Waits until ``end``."""
        try:
            code = self._process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)  # compilers of it, too
            self._process.wait()
            return f"it took too long: {self._errors.read_text().rpartition(_DUMP)[2][:2000]}"
        return f"exit code {code}: {self._errors.read_text()[-2000:]}" if code else ""

    def tracebacks(self) -> str:
        """Of the checks that failed."""
        parts = self._errors.read_text().split(_MARK)[1:]
        return "".join(part.partition(_END)[0] for part in parts)

    def records(self) -> list[dict[str, Any]]:
        """Of the checks that came to their ends."""
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        return [json.loads(line) for line in lines]


def run_group(group: str, device: str, file: Path) -> None:
    """The checks of one group, in this process; each record is in the file before the next check begins."""
    from checks import CHECKS, Env, LeftOut, error_text

    sys.path.append(str(HERE / "site"))
    importlib.import_module(group)
    env = Env(device)
    with open(file, "a") as out:
        for check in CHECKS:
            start = time.perf_counter()
            try:
                found = check.run(env)
                state, detail = "ok", found or ""
            except LeftOut as reason:
                state, detail = "left out", str(reason)
            except Exception as error:
                state, detail = "FAILED", error_text(error)
                print(f"{_MARK}{group}: {check.name}\n{traceback.format_exc()}{_END}", file=sys.stderr)
            made = record(group, check.name, state, detail, time.perf_counter() - start)
            out.write(json.dumps(made) + "\n")
            out.flush()


def record(group: str, name: str, state: str, detail: str = "", seconds: float = 0.0) -> dict[str, Any]:
    """The result of a check, which is printed."""
    shown = f": {' | '.join(detail.splitlines())}" if detail else ""
    print(f"{state:8s} {group}: {name} ({seconds:.1f} s){shown}", flush=True)
    return {"group": group, "check": name, "state": state, "detail": detail, "seconds": round(seconds, 3)}


def machine(device: str) -> dict[str, str]:
    """What the checks ran on."""
    import torch

    has_gpu = device == "cuda" and torch.cuda.is_available()
    name = torch.cuda.get_device_name() if has_gpu else "cpu"
    versions = {"torch": torch.__version__, "cuda": str(torch.version.cuda), "python": sys.version.split()[0]}
    return {"device": name, **versions}


if __name__ == "__main__":
    main()
