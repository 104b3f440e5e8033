"""Runs numbered tasks in compile processes of which any may die: only what kills its process is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tilec.build.processes import stalls
from tilec.build.processes.pool import compile_executor

#: A compile process that dies takes others with it: so often is a task tried.
_ATTEMPTS = 2

Task = TypeVar("Task")
Result = TypeVar("Result")


def run_all(
    executor: Callable[[], Executor],
    function: Callable[[Task], Result],
    tasks: Iterable[tuple[int, Task]],
    at_once: int,
    done: Callable[[int, Result | None], bool],
) -> None:
    """Calls ``function`` in the order of ``tasks``, ``at_once`` at a time; calls ``done`` as they finish,
    with None where the process died, which says whether to go on. ``executor`` gives the pool, a new one
    after a process died: what was under way then is tried again one by one, so that only what kills its
    process is lost. A pool whose processes stand still counts as one that died."""
    run = _Run(executor, function, iter(tasks), at_once, done)
    watch = stalls.StallWatch()
    while run.start():
        ended = wait(run.running, timeout=stalls.QUIET, return_when=FIRST_COMPLETED).done
        if not ended:
            watch.end_if_stalled(executor())
        if not all(map(run.goes_on, ended)):
            for other in run.running:
                other.cancel()
            return


@dataclass
class _Run(Generic[Task, Result]):
    """What is under way, and ``again`` what has died with its process and is to be tried once more."""

    executor: Callable[[], Executor]
    function: Callable[[Task], Result]
    waiting: Iterator[tuple[int, Task]]
    at_once: int
    done: Callable[[int, Result | None], bool]
    running: dict[Future[Result], tuple[int, Task]] = field(default_factory=dict)
    attempts: Counter[int] = field(default_factory=Counter)
    again: list[tuple[int, Task]] = field(default_factory=list)

    def start(self) -> bool:
        """Fills the pool, or gives it one task to try again; whether anything is under way."""
        for _ in range((1 if self.again else self.at_once) - len(self.running)):
            chosen = self.again.pop(0) if self.again else next(self.waiting, None)
            if chosen is None:
                break
            self.running[self._submitted(chosen[1])] = chosen
        return bool(self.running)

    def _submitted(self, task: Task) -> Future[Result]:
        """A task in the pool; in the next one where a process of this one has died since it was asked for."""
        try:
            return self.executor().submit(self.function, task)
        except BrokenProcessPool:
            return self.executor().submit(self.function, task)

    def goes_on(self, ended: Future[Result]) -> bool:
        """Takes what a task came to; False where its result is the last that is wanted."""
        number, task = self.running.pop(ended)
        made = _made(ended)
        self.attempts[number] += 1
        if made is None and self.attempts[number] < _ATTEMPTS:
            self.again.append((number, task))
            return True
        return self.done(number, made)


def _made(future: Future[Result]) -> Result | None:
    """None where the process died."""
    try:
        return future.result()
    except (BrokenProcessPool, CancelledError):
        return None


class Compilers:
    """A pool of compile processes for `run_all`: calling it gives the executor, a new one after a process of
    the last one died."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._stack = ExitStack()
        self._executor: Executor | None = None

    def __call__(self) -> Executor:
        """The executor."""
        if self._executor is not None and getattr(self._executor, "_broken", False):
            self.close()
        if self._executor is None:
            self._executor = self._stack.enter_context(compile_executor(self._jobs))
        return self._executor

    def close(self) -> None:
        """Ends the pool at once: what it was doing is of no use any more."""
        self._executor = None
        stack, self._stack = self._stack, ExitStack()
        stack.__exit__(RuntimeError, RuntimeError(), None)
