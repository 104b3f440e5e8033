"""The process that runs candidates on one device: requests are lines of JSON on stdin, answers on stdout.

    {"do": "describe"}                                            -> {"facts": {...}}
    {"do": "measure", "folder", "library", "entry", ...}          -> {"points": [{"us", "samples"}, ...]}
    {"do": "compare", "folder", "candidates": [[library, entry]]} -> {"points": [{"0": [us, ...], ...}, ...]}

Answers have "wrong" where outputs are, "error" where a call was refused, "lost" where the device failed: the
process ends then, as nothing more would run in it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tilec.portable.devices import open_device
from tilec.portable.devices.base import Device
from tilec.portable.loader import Kernel, LaunchError, Library, LibraryError, load
from tilec.portable.runner.problem import Point, Problem
from tilec.portable.timing import Sampler, measure

#: What stands for a config: other programs only ever make samples longer.
_PERCENTILE = 25
_DRIVER_FAILED = 42  # TILEC_ERR_DRIVER


class Lost(Exception):
    """The device failed: nothing more runs in this process."""


class Worker:
    """One device, with the problem and the libraries that were asked for last. ``threads``: of a CPU, 0 for
    all; a single one stays where it is, and its own CPU seconds count: other programs take none of them."""

    def __init__(self, device: Device, threads: int) -> None:
        self.device, self.threads = device, threads
        self.facts = device.facts()
        device.enter(threads)
        self._how = device.options(threads)
        self._libraries: dict[str, Library] = {}
        self._problem: tuple[str, Problem] | None = None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one request."""
        if request["do"] == "describe":
            return {"facts": self.facts}
        answers = {"measure": self._measure, "compare": self._compare}
        try:
            return answers[request["do"]](request)
        except (LaunchError, LibraryError, ValueError, TypeError) as error:
            status = getattr(error, "status", 0)
            if status == _DRIVER_FAILED:
                raise Lost(str(error)) from error
            return {"error": str(error)}

    def _measure(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Checks one candidate, then times it at each point."""
        problem, kernel = self._open(request["folder"]), self._kernel(request["library"], request["entry"])
        wrong = problem.check(kernel, **self._how)
        if wrong:
            return {"wrong": wrong}
        points = []
        for point in problem.points:
            sampler = self._sampler(point, kernel, request["cold"], 0.0)
            timing = measure({"": sampler}, seconds=request["seconds"], fewest=3, most=200)[""]
            points.append({"us": timing.percentile(_PERCENTILE) * 1e6, "samples": len(timing.samples)})
        return {"points": points}

    def _compare(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Times candidates in turns; the samples of each in microseconds, by its number."""
        problem = self._open(request["folder"])
        kernels = [self._kernel(library, entry) for library, entry in request["candidates"]]
        points = []
        for point in problem.points:
            samplers = {
                str(number): self._sampler(point, kernel, request["cold"], request["pause"])
                for number, kernel in enumerate(kernels)
            }
            rounds = request["rounds"]
            found = measure(samplers, seconds=0.0, fewest=rounds, most=rounds)
            points.append({name: [one * 1e6 for one in each.samples] for name, each in found.items()})
        return {"points": points}

    def _sampler(self, point: Point, kernel: Kernel, cold: bool, pause: float) -> Sampler:
        calls = [point.prepared(kernel, values, **self._how) for values in point.sets(cold)]
        clock = time.thread_time if self.threads == 1 else time.perf_counter
        return self.device.sampler(lambda number: calls[number](), len(calls), clock=clock, pause=pause)

    def _open(self, folder: str) -> Problem:
        if self._problem is None or self._problem[0] != folder:
            self._problem = None  # frees what the last one held
            cache = self.facts.get("l2_bytes") or self.facts.get("cache_bytes") or 0
            self._problem = (folder, Problem(Path(folder), self.device, cache))
        return self._problem[1]

    def _kernel(self, library: str, entry: str) -> Kernel:
        if library not in self._libraries:
            self._libraries[library] = load(library)
        return self._libraries[library].kernels[entry]


def main(arguments: list[str]) -> None:
    """``worker.py DEVICE THREADS [WHERE]``: answers until stdin ends. ``WHERE``: as `open_device`."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    try:
        worker = Worker(open_device(arguments[0], *arguments[2:]), int(arguments[1]))
    except LaunchError as error:
        _say(out, {"lost": str(error)})
        return
    for line in sys.stdin:
        try:
            _say(out, worker.answer(json.loads(line)))
        except Lost as error:
            _say(out, {"lost": str(error)})
            os._exit(0)


def _end_with(parent: int) -> None:
    """Ends this process when the one that asks is gone, also while a candidate hangs."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _say(out: IO[str], answer: Mapping[str, Any]) -> None:
    out.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
