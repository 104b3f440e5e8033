"""Runs numbered tasks in compile processes of which any may die: only what kills its process is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from typing import TypeVar

from tilec.build import stalls
from tilec.build.pool import compile_executor

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
    waiting, running, attempts = iter(tasks), dict[Future[Result], tuple[int, Task]](), dict[int, int]()
    again: list[tuple[int, Task]] = []
    watch = stalls.StallWatch()
    while True:
        for _ in range((1 if again else at_once) - len(running)):
            chosen = again.pop(0) if again else next(waiting, None)
            if chosen is None:
                break
            running[executor().submit(function, chosen[1])] = chosen
        if not running:
            return
        ended = wait(running, timeout=stalls.QUIET, return_when=FIRST_COMPLETED).done
        if not ended:
            watch.end_if_stalled(executor())
        for future in ended:
            number, task = running.pop(future)
            made = _made(future)
            attempts[number] = attempts.get(number, 0) + 1
            if made is None and attempts[number] < _ATTEMPTS:
                again.append((number, task))
            elif not done(number, made):
                for other in running:
                    other.cancel()
                return


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
