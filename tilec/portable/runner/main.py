"""Measures the candidates of an exported folder; needs Python alone. Interrupted, it goes on where it was.

    python run.py [--device cuda:0] [--results FILE] [--seconds N] [--only TEXT] [--timeout N]

It measures those that are for such a device, by default the kind that the first ones are for. Results are
lines of JSON; `tilec tune MANIFEST --merge FILE...` reads them. Exit code 1: a problem has no config that
works; 3: there is no such device; 4: time was up before the end.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilec.portable.runner.journal import Journal
from tilec.portable.runner.judge import OK, PAUSE, POINT, ROUNDS, finalists, outcome_of, score
from tilec.portable.runner.process import DeviceMissing, WorkerProcess

NOTHING_WORKS, NO_DEVICE, NOT_DONE = 1, 3, 4
#: Seconds of measuring one config at a point before the finals.
_SECONDS = 0.05


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; returns its exit code."""
    options = _options(arguments)
    folder = Path(options.folder)
    described = json.loads((folder / "export.json").read_text())
    journal = Journal(Path(options.results or folder / "results.jsonl"))
    options.device = options.device or described["problems"][0]["device"]
    worker = WorkerProcess(options.device, options.threads)
    try:
        session = _Session(folder, described, journal, worker, options)
    except DeviceMissing as error:
        print(f"error: {error}", file=sys.stderr)
        return NO_DEVICE
    try:
        return session.run()
    except KeyboardInterrupt:
        print(f"interrupted; the same command goes on, {journal.path} has what was measured")
        return NOT_DONE
    finally:
        worker.close()
        journal.close()


def _counted(variants: int) -> str:
    return f"{variants} variant{'s' if variants != 1 else ''}"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", default=".", help="the exported folder")
    parser.add_argument("--device", help="cpu, cuda:0, cuda:1, hip:0, metal:0; default the first variant's")
    parser.add_argument("--threads", type=int, default=0, help="of a CPU, 0 for all")
    parser.add_argument("--results", help="where to write; default results.jsonl in the folder")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so long")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds that a config may take")
    parser.add_argument("--only", default="", help="problems whose name has this text")
    return parser.parse_args(arguments)


class _Session:
    """The problems of a folder on one device. ``known``: records of an earlier run, by problem and number."""

    def __init__(
        self,
        folder: Path,
        described: Mapping[str, Any],
        journal: Journal,
        worker: WorkerProcess,
        options: argparse.Namespace,
    ) -> None:
        self.folder, self.described, self.journal, self.worker = folder, described, journal, worker
        self.options = options
        self.deadline = time.monotonic() + options.seconds
        self.facts = worker.facts
        self.known = self._known()
        self.failures: dict[str, int] = {}

    def run(self) -> int:
        """Measures what is left; returns the exit code."""
        problems = [one for one in self.described["problems"] if self._is_meant(one)]
        where = ", ".join(filter(None, (self.facts["name"], self.facts["driver"])))
        print(f"{where}: {_counted(len(problems))}", flush=True)
        works: bool = True
        for at, problem in enumerate(problems, 1):
            if not self._is_time():
                left = _counted(len(problems) - at + 1)
                print(f"time is up with {left} left; the same command goes on")
                return NOT_DONE
            works &= self._solve(problem, f"[{at}/{len(problems)}]")
        return 0 if works else NOTHING_WORKS

    def _is_meant(self, problem: Mapping[str, Any]) -> bool:
        """Whether a problem is for such a device, and one of those that were asked for."""
        kinds = {text.partition(":")[0] for text in (problem["device"], self.options.device)}
        return len(kinds) == 1 and self.options.only in problem["about"]["id"]

    def _solve(self, problem: Mapping[str, Any], label: str) -> bool:
        """Measures the candidates of a problem, then the finalists in turns."""
        about, candidates, scores = problem["about"], problem["candidates"], dict[int, float]()
        start = time.monotonic()
        self._write(about["id"], None, {"about": about})
        for at, candidate in enumerate(candidates, 1):
            if not self._is_time():
                return True
            scores[candidate["number"]] = self._score(about, self._measured(problem, candidate, start))
            self._show(label, about, f"{at}/{len(candidates)}", scores)
        works = self._finals(problem, scores)
        self._show(label, about, "done", scores, end="\n")
        return works

    def _measured(
        self, problem: Mapping[str, Any], candidate: Mapping[str, Any], start: float
    ) -> dict[str, Any]:
        """The record of a candidate, of an earlier run or of now."""
        number, name = candidate["number"], problem["about"]["id"]
        if (name, number) in self.known:
            return self.known[name, number]
        request = {
            "do": "measure",
            "folder": str(self.folder / problem["folder"]),
            "library": str(self.folder / candidate["library"]),
            "entry": candidate["entry"],
            "seconds": _SECONDS,
            "cold": problem["cold"],
        }
        points = problem["about"]["points"] if problem["about"].get("is_sweep") else ()
        patience = self.options.timeout + POINT * len(points)
        outcome, points, detail = outcome_of(self.worker.ask(request, patience))
        if outcome != OK:
            self.failures[outcome] = self.failures.get(outcome, 0) + 1
        record = {
            "number": number,
            "outcome": outcome,
            "points": points,
            "detail": detail or candidate["detail"],
            "seconds": time.monotonic() - start,
        }
        return self._write(name, number, record)

    def _finals(self, problem: Mapping[str, Any], scores: Mapping[int, float]) -> bool:
        about = problem["about"]
        numbers = finalists(scores, (0, about["incumbent"]))
        if not numbers or about.get("is_sweep"):
            return bool(numbers)
        if self.known.get((about["id"], "finals"), {}).get("numbers") == numbers:
            return True
        entries = {one["number"]: one for one in problem["candidates"]}
        request = {
            "do": "compare",
            "folder": str(self.folder / problem["folder"]),
            "candidates": [
                [str(self.folder / one["library"]), one["entry"]] for one in map(entries.__getitem__, numbers)
            ],
            "rounds": ROUNDS,
            "pause": PAUSE,
            "cold": problem["cold"],
        }
        answer = self.worker.ask(request, self.options.timeout * (1 + len(numbers)))
        if "points" in answer:
            self._write(about["id"], "finals", {"numbers": numbers, "finals": answer["points"]})
        return True

    def _score(self, about: Mapping[str, Any], record: Mapping[str, Any]) -> float:
        if record["outcome"] != OK:
            return math.inf
        return score(record["points"], [one["weight"] for one in about["points"]], about["weighted"])

    def _write(self, problem: str, number: int | str | None, record: Mapping[str, Any]) -> dict[str, Any]:
        """Puts a record on the disk, unless it is there."""
        key = (problem, number)
        if key not in self.known or number == "finals":
            self.known[key] = {**self._origin(), "problem": problem, **record}
            self.journal.add(self.known[key])
        return self.known[key]

    def _origin(self) -> dict[str, Any]:
        """Whose record it is: which export, which device."""
        return {
            "run": self.described["run"],
            "created": self.described["created"],
            "device": self.facts,
            "threads": self.options.threads,
        }

    def _known(self) -> dict[tuple[str, int | str | None], dict[str, Any]]:
        """The records of this export on such a device."""
        found: dict[tuple[str, int | str | None], dict[str, Any]] = {}
        for record in self.journal.read():
            same = record.get("run") == self.described["run"] and record.get("device") == self.facts
            if same and record.get("threads") == self.options.threads:
                found[record["problem"], "finals" if "finals" in record else record.get("number")] = record
        return found

    def _is_time(self) -> bool:
        return bool(time.monotonic() < self.deadline)

    def _show(
        self, label: str, about: Mapping[str, Any], state: str, scores: Mapping[int, float], end: str = ""
    ) -> None:
        """One line that is written over on a terminal; elsewhere only its last state."""
        best = min(scores.values(), default=math.inf)
        gain = scores.get(0, math.inf) / best if math.isfinite(best) else math.nan
        failures = ", ".join(f"{count} {kind}" for kind, count in self.failures.items())
        text = f"{label} {about['id']}: {state}, best {best:.2f} us, {gain:.3f} x the default  {failures}"
        if sys.stdout.isatty():
            print(f"\r\x1b[K{text}", end=end, flush=True)
        elif end:
            print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
