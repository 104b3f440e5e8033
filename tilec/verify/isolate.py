"""Runs a session in a process of its own: a crash or a hang is the failure of one case, not the end.

The worker (`tilec.verify.worker`) gets a JSON request on stdin and answers in JSON lines: {"case": ...}
before the library runs, {"result": ...} after it, {"done": variant}, {"error": ...}, {"lost": why} when work
on a GPU failed and nothing more runs there in that process. When it dies, the case that it had announced has
failed, and a new worker goes on with the next variant.
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
from typing import Any

import tilec.errors
from tilec.errors import Place, TilecError, VerifyError
from tilec.families import class_names
from tilec.trials.facts import KernelFacts, VariantFacts
from tilec.verify.results import FAILED, CaseResult
from tilec.verify.session import Request

#: Seconds after which a call counts as hanging; and those for all else (start, oracle).
PATIENCE, _PATIENCE_BETWEEN = 60.0, 600.0

Chosen = tuple[KernelFacts, VariantFacts]


def run_isolated(
    request: Request, chosen: Sequence[Chosen], patience: float = PATIENCE
) -> Iterator[CaseResult]:
    """The results of the variants ``chosen``.

    Raises:
        TilecError: what the worker could not do at all (no library of this machine, a bad manifest).
        VerifyError: the worker died before it ran anything.
    """
    left = {variant.id: (kernel, variant) for kernel, variant in chosen}
    while left:
        worker = _Worker(request, list(left), patience)
        for message in worker.messages():
            if "result" in message:
                yield CaseResult(**message["result"])
            elif "done" in message:
                left.pop(message["done"])
            elif "error" in message:
                raise _error(message["error"])
        if worker.case is None and left:
            raise VerifyError("the process that verifies ended before it ran anything", why=worker.ending)
        if worker.case is not None:
            kernel, variant = left.pop(worker.case["variant"])
            yield _failure(kernel, variant, worker.case, request, worker.ending)


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
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tilec.verify.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Other modules of the same names in the working folder are not meant.
            env={**os.environ, "PYTHONSAFEPATH": "1"},
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
            self._process.kill()
            self._process.wait()

    def _listen(self) -> Iterator[dict[str, Any]]:
        while True:
            patience = _PATIENCE_BETWEEN if self.case is None else self._patience
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
