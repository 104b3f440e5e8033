"""Many kernels at once: elaborated here, compiled in processes."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.errors import CompileError, TilecError
from tilec.inprocess.compilation import store
from tilec.inprocess.compilation.building import Card, Job, build
from tilec.inprocess.compilation.request import Request, finish, known_kernel, late_kernel, planned
from tilec.inprocess.kernel import JITKernel

#: Jobs that wait for a compile process, so that none of them waits for the next job.
_AHEAD = 2

Done = Callable[[int, "JITKernel | TilecError"], None]


def compile_all(
    requests: Sequence[Request], num_workers: int | None = None, ignore_error: bool = False
) -> list[JITKernel | None]:
    """The kernels in order, shown by a bar on a terminal. With ``ignore_error`` a failure gives None and a
    warning, else the first one is raised."""
    made: dict[int, JITKernel | None] = {}
    with _Bar(len(requests)) as bar:

        def done(at: int, result: JITKernel | TilecError) -> None:
            bar.step()
            if isinstance(result, TilecError):
                _fail(requests[at], result, ignore_error)
                made[at] = None
            else:
                made[at] = result

        compile_each(requests, num_workers, done)
    return [made[at] for at in range(len(requests))]


def compile_each(requests: Sequence[Request], num_workers: int | None, done: Done) -> None:
    """Calls ``done`` with the place of each request and its kernel, or what is wrong with it, as they come.
    What ``done`` raises ends it. ``num_workers``: processes, by default one per kernel up to the cores."""
    start = time.monotonic()
    missing: list[int] = []
    for at, request in enumerate(requests):
        kernel = known_kernel(request, start)
        if kernel is None:
            missing.append(at)
        else:
            done(at, kernel)
    if missing:
        _Compilation(requests, start, done).run(missing, num_workers)


@dataclass(frozen=True)
class _Failure:
    """An error that crossed from a compile process."""

    error: TilecError


class _Compilation:
    """The kernels that are not in the cache."""

    def __init__(self, requests: Sequence[Request], start: float, done: Done) -> None:
        self._requests, self._start, self._done = requests, start, done
        self._waiting: dict[str, list[int]] = {}
        self._jobs: dict[int, tuple[str, Job]] = {}
        self._ended: dict[str, tuple[Card | _Failure | None, Job]] = {}

    def run(self, missing: Sequence[int], num_workers: int | None) -> None:
        """Compiles them; one worker, or one kernel, in this process."""
        from tilec.build.processes.attempts import Compilers, run_all
        from tilec.build.processes.pool import default_jobs

        workers = min(num_workers or default_jobs(), len(missing))
        if workers == 1:
            for at, job in self._planned(missing):
                self._finish(at, _build_safely(job))
            return
        compilers = Compilers(workers)
        try:
            run_all(compilers, _build_safely, self._planned(missing), workers + _AHEAD, self._finish)
        finally:
            compilers.close()

    def _planned(self, missing: Sequence[int]) -> Iterator[tuple[int, Job]]:
        """The jobs, made while others are compiled; of equal kernels, one."""
        for at in missing:
            try:
                key, job = planned(self._requests[at])
            except TilecError as error:
                self._done(at, error)
                continue
            kernel = late_kernel(self._requests[at], key, self._start)
            if kernel is not None:
                self._done(at, kernel)
            elif key in self._ended:
                self._done(at, self._result(at, *self._ended[key]))
            elif key in self._waiting:
                self._waiting[key].append(at)
            else:
                self._waiting[key], self._jobs[at] = [at], (key, job)
                yield at, job

    def _finish(self, at: int, made: Card | _Failure | None) -> bool:
        key, job = self._jobs.pop(at)
        if isinstance(made, Card):
            store.keep(key, made, job.path)
        self._ended[key] = (made, job)
        for place in self._waiting.pop(key):
            self._done(place, self._result(place, made, job))
        return True

    def _result(self, at: int, made: Card | _Failure | None, job: Job) -> JITKernel | TilecError:
        if isinstance(made, Card):
            return finish(self._requests[at], (made, job.path), "compiled", self._start)
        if isinstance(made, _Failure):
            return made.error
        return CompileError(
            f"the compile process of {self._requests[at].name} died",
            why="it was killed, ran out of memory, or crashed in the code generator",
            remedy="compile it with num_workers=1",
        )


def _build_safely(job: Job) -> Card | _Failure:
    """Runs in a compile process: an error does not stop the others."""
    try:
        return build(job)
    except TilecError as error:
        return _Failure(error)


def _fail(request: Request, error: TilecError, ignore: bool) -> None:
    error.place = error.place or request.entry.captured.place
    if not ignore:
        raise error
    warnings.warn(f"{request.name} was not compiled: {error}", stacklevel=3)


class _Bar:
    """A progress bar on a terminal, nothing elsewhere."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._bar: Any = None

    def __enter__(self) -> _Bar:
        if sys.stderr.isatty() and self._total > 1:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

            columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("", total=self._total)
        return self

    def step(self) -> None:
        """One more kernel."""
        if self._bar is not None:
            self._bar.advance(self._task)

    def __exit__(self, *_error: object) -> None:
        if self._bar is not None:
            self._bar.stop()
