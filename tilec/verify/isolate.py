"""Runs sessions in processes of their own: a crash or a hang is the failure of one case, not the end.

A worker (`tilec.verify.worker`) gets a JSON request on stdin and answers in JSON lines: {"case": ...} before
the library runs, {"result": ...} after it, {"done": variant}, {"error": ...}, {"lost": why} when work on a
GPU failed and nothing more runs there in that process. When it dies, the case that it had announced has
failed, and a new worker goes on with the next variant. Several workers share the variants.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import tilec.errors
from tilec.errors import Place, TilecError, VerifyError
from tilec.families import class_names
from tilec.trials.facts import KernelFacts, VariantFacts
from tilec.verify.results import FAILED, CaseResult
from tilec.verify.session import Request

#: Seconds after which a call counts as hanging; and those for all else (start, oracle), none of an emulator.
PATIENCE, _PATIENCE_BETWEEN = 60.0, 600.0

#: Products of an oracle are small, and workers beside each other: threads of NumPy's BLAS, which spin for
#: more work, double the time of 71 cases of attention on two cores.
_ALONE = {"OPENBLAS_NUM_THREADS": "1"}

Chosen = tuple[KernelFacts, VariantFacts]


def run_isolated(
    request: Request, chosen: Sequence[Chosen], patience: float = PATIENCE, jobs: int = 1
) -> Iterator[CaseResult]:
    """The results of the variants ``chosen`` as they come, by up to ``jobs`` workers at a time; those of a
    variant in their order.

    Raises:
        TilecError: what a worker could not do at all (no library of this machine, a bad manifest).
        VerifyError: a worker died before it ran anything.
    """
    yield from _Crew(request, patience).results(_shares(chosen, jobs))


def _shares(chosen: Sequence[Chosen], jobs: int) -> list[list[Chosen]]:
    """The variants of each worker. Neighbours with the same tile IR stay together, which ask an oracle for
    the same; schedules of a kernel, which are alike, are dealt out."""
    groups = [list(members) for _, members in groupby(chosen, key=lambda each: each[1].ir_text)]
    dealt = [groups[first::jobs] for first in range(min(jobs, len(groups)))]
    return [[each for group in share for each in group] for share in dealt]


class _Crew:
    """Workers beside each other, one at a time for each thread."""

    def __init__(self, request: Request, patience: float) -> None:
        self._request, self._patience = request, patience
        self._found: queue.SimpleQueue[CaseResult | Exception | None] = queue.SimpleQueue()
        self._working: set[_Worker] = set()
        self._ended = threading.Event()

    def results(self, shares: Sequence[Sequence[Chosen]]) -> Iterator[CaseResult]:
        """What all of them find, or the first error."""
        threads = [threading.Thread(target=self._work, args=(share,), daemon=True) for share in shares]
        try:
            for thread in threads:
                thread.start()
            left = len(threads)
            while left:
                found = self._found.get()
                if isinstance(found, Exception):
                    raise found
                if found is None:
                    left -= 1
                else:
                    yield found
        finally:
            self._ended.set()
            for worker in tuple(self._working):
                worker.kill()

    def _work(self, share: Sequence[Chosen]) -> None:
        try:
            for result in self._verified(share):
                self._found.put(result)
        except Exception as error:  # raised again where the results are read
            self._found.put(error)
        else:
            self._found.put(None)

    def _verified(self, share: Sequence[Chosen]) -> Iterator[CaseResult]:
        left = {variant.id: (kernel, variant) for kernel, variant in share}
        while left and not self._ended.is_set():
            worker = _Worker(self._request, list(left), self._patience)
            self._working.add(worker)
            if self._ended.is_set():
                worker.kill()
            for message in worker.messages():
                if "result" in message:
                    yield CaseResult(**message["result"])
                elif "done" in message:
                    left.pop(message["done"])
                elif "error" in message:
                    raise _error(message["error"])
            self._working.discard(worker)
            if worker.case is None and left:
                raise VerifyError("the process that verifies ended before it ran anything", why=worker.ending)
            if worker.case is not None:
                kernel, variant = left.pop(worker.case["variant"])
                yield _failure(kernel, variant, worker.case, self._request, worker.ending)


def _failure(
    kernel: KernelFacts, variant: VariantFacts, case: Mapping[str, Any], request: Request, why: str
) -> CaseResult:
    return CaseResult(
        kernel.name,
        variant.id,
        variant.target,
        case["dims"],
        request.seed,
        FAILED,
        "none",
        request.device,
        detail=why,
        values=case["values"],
    )


def _error(parts: Mapping[str, Any]) -> TilecError:
    """The worker's error, of its own class."""
    kind = getattr(tilec.errors, parts["class"], TilecError)
    place = Place(**parts["place"]) if parts["place"] else None
    made: TilecError = kind(parts["what"], place=place, why=parts["why"], remedy=parts["remedy"])
    return made


class _Worker:
    """One worker process. ``case`` is what it was running when it ended, ``ending`` says how it ended."""

    def __init__(self, request: Request, variants: Sequence[int], patience: float) -> None:
        self.case: dict[str, Any] | None = None
        self.ending = ""
        self._patience = patience
        self._between = None if request.emulate else _PATIENCE_BETWEEN
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tilec.verify.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Other modules of the same names in the working folder are not meant.
            env={**_ALONE, **os.environ, "PYTHONSAFEPATH": "1"},
        )
        self._send(request, variants)
        threading.Thread(target=self._read, daemon=True).start()

    def _send(self, request: Request, variants: Sequence[int]) -> None:
        manifest = None if request.manifest is None else str(request.manifest)
        dims = None if request.dims is None else dict(request.dims)
        text = json.dumps(
            {
                "path": str(request.path),
                "manifest": manifest,
                "dims": dims,
                "seed": request.seed,
                "device": request.device,
                "families": class_names(),
                "values": request.values,
                "emulate": request.emulate,
                "variants": list(variants),
            }
        )
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def messages(self) -> Iterator[dict[str, Any]]:
        """What the worker says, to its end."""
        try:
            yield from self._listen()
        finally:
            self.kill()
            self._process.wait()

    def kill(self) -> None:
        """Ends it, whatever it does."""
        self._process.kill()

    def _listen(self) -> Iterator[dict[str, Any]]:
        while True:
            patience = self._between if self.case is None else self._patience
            try:
                line = self._lines.get(timeout=patience)
            except queue.Empty:
                self.ending = f"no answer within {patience:.0f} s"
                return
            if line is None:
                self.ending = _ending(self._process.wait())
                return
            message = json.loads(line)
            if "lost" in message:
                self.ending = message["lost"]
                return
            self.case = message.get("case", self.case if "result" not in message else None)
            yield message


def _ending(code: int) -> str:
    """How a process ended, for people."""
    if code < 0:
        return f"the library crashed with {signal.Signals(-code).name}"
    return f"the process ended with code {code}"
