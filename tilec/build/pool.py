"""Runs tasks in compile processes that start with TVM loaded, and stops them cleanly."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import forkserver
from types import ModuleType
from typing import TypeVar

from tilec.errors import CompileError
from tilec.settings import read_settings

Task = TypeVar("Task")
Result = TypeVar("Result")

_PRELOAD = "tilec.build.preload"


def default_jobs() -> int:
    """TILEC_JOBS, else one process per core that this process may use."""
    return read_settings().jobs or len(os.sched_getaffinity(0))


def run_tasks(
    work: Callable[[Task], Result], tasks: Sequence[Task], jobs: int, done: Callable[[int, Result], None]
) -> None:
    """Calls ``done(position, result)`` here as tasks finish, in any order.

    One task, or one job, runs in this process. The first error of a task cancels the rest and is raised; so
    is an interrupt, and no compile process outlives the call.
    """
    if jobs == 1 or len(tasks) == 1:
        for at, task in enumerate(tasks):
            done(at, work(task))
        return
    with _executor(min(jobs, len(tasks))) as executor:
        with _main_module_hidden():
            positions = {executor.submit(work, task): at for at, task in enumerate(tasks)}
        for future in as_completed(positions):
            done(positions[future], _result(future))


def _result(future: Future[Result]) -> Result:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise CompileError(
            "a compile process died",
            why="it was killed, ran out of memory, or crashed in the code generator",
            remedy="try again with -j 1, which names the variant",
        ) from error


@contextmanager
def _executor(workers: int) -> Iterator[ProcessPoolExecutor]:
    """An executor whose processes are ended when the block is left by an exception."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_PRELOAD])
    with _ignoring_interrupts():
        forkserver.ensure_running()
    others = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(workers, mp_context=context)
    try:
        yield executor
    except BaseException:
        executor.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    executor.shutdown()


@contextmanager
def _main_module_hidden() -> Iterator[None]:
    """Processes started in the block do not run the caller's script again: tasks are imported by name."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Processes started in the block, and theirs, leave Ctrl-C to this one: the disposition is inherited."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
