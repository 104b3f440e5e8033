"""The process in which `tilec.verify.isolate` runs a library; see there for what it says."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import tilec.build.processes.lean_tvm  # noqa: F401  # in front of what imports TVM
from tilec.errors import TilecError
from tilec.families import register_missing
from tilec.verify.emulated import session_of
from tilec.verify.session import DeviceLost, Request


def main() -> None:
    """Answers one request. What references and kernels print goes to stderr."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        _answer(json.load(sys.stdin), out)
    except DeviceLost as error:
        _say(out, lost=f"{error.what}: {error.why}")
    except TilecError as error:
        parts = {"class": type(error).__name__, "what": error.what, "why": error.why, "remedy": error.remedy}
        _say(out, error={**parts, "place": asdict(error.place) if error.place else None})


def _answer(asked: Mapping[str, Any], out: IO[str]) -> None:
    register_missing(asked["families"])
    manifest = asked["manifest"]
    path, dims = Path(asked["path"]), asked["dims"]
    source = Path(manifest) if manifest else None
    request = Request(path, source, dims, asked["seed"], asked["device"], asked["values"], asked["emulate"])
    session = session_of(request)
    for variant in asked["variants"]:
        for result in session.results(variant, lambda *case: _say(out, case=_case(*case))):
            _say(out, result=asdict(result))
        _say(out, done=variant)


def _case(variant: int, dims: Mapping[str, int], values: str) -> dict[str, Any]:
    return {"variant": variant, "dims": dict(dims), "values": values}


def _say(out: IO[str], **message: object) -> None:
    out.write(json.dumps(message) + "\n")


if __name__ == "__main__":
    main()
