"""Runs tasks in compile processes that start with TVM loaded, and stops them cleanly."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from tilec.build.processes.orphans import end_with_caller
from tilec.build.processes.safe_path import OWN_SAFE_PATH, SAFE_PATH
from tilec.errors import CompileError
from tilec.families import class_names, register_missing
from tilec.portable.cores import usable_cores
from tilec.settings import read_settings

Task = TypeVar("Task")
Result = TypeVar("Result")

_PRELOAD = "tilec.build.processes.preload"
#: How the names of files end in which processes note what they began.
_NOTE = ".task"
#: The signals that end a command; Windows has no third one.
_ENDING = {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}
#: Seconds to wait for a process that was told to end.
_PATIENCE = 5.0
#: Characters that the path of a socket has at most (macOS; Linux has 107), and those behind TMPDIR.
_SOCKET, _BEHIND_FOLDER = 103, len("/pymp-01234567/listener-01234567")


def default_jobs() -> int:
    """TILEC_JOBS, else one process per core that this process may use."""
    return read_settings().jobs or usable_cores()


def run_tasks(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    jobs: int,
    done: Callable[[int, Result], None],
    title: Callable[[Task], str] = str,
) -> None:
    """Calls ``done(position, result)`` here as tasks finish, in any order.

    One task or one job has a process of its own, too, as a kernel's file may end it: where one dies, the
    CompileError names the tasks that were under way by ``title``, and an interrupt does so, too. The first
    error of a task cancels the rest and is raised; so is an interrupt, and no compile process outlives the
    call.
    """
    if not tasks:
        return
    with _folder() as folder, _executor(min(jobs, len(tasks)), folder) as executor:
        positions: dict[Future[Result], int] = {}

        def under_way() -> str:
            lost = {at for one, at in positions.items() if _is_lost(one)}
            titles = [title(tasks[at]) for at in sorted(lost & _noted(Path(folder)))]
            return f"under way were: {'; '.join(titles) or 'none'}"

        try:
            with _main_module_hidden(), _interrupts_deferred():
                for at, task in enumerate(tasks):  # the first may have died before the last is there
                    positions[executor.submit(_begun, work, task, at)] = at
            for future in as_completed(positions):
                done(positions[future], future.result())
        except BrokenProcessPool as error:
            raise _died(under_way()) from error
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(under_way()) from error


def _is_lost(future: Future[Any]) -> bool:
    return not future.done() or isinstance(future.exception(), BrokenProcessPool)


def _begun(work: Callable[[Task], Result], task: Task, at: int) -> Result:
    """Runs a task in a compile process, which notes first which one it is. What a full disk keeps it from is
    the name in the error of a process that dies; the task says itself what it cannot write."""
    with suppress(OSError):
        _note().write_text(str(at))
    return work(task)


def _note() -> Path:
    return Path(tempfile.gettempdir()) / f"{os.getpid()}{_NOTE}"


def _noted(folder: Path) -> set[int]:
    """The last task that each process began. One that died as it wrote its note has none."""
    return {int(text) for note in folder.glob(f"*{_NOTE}") if (text := note.read_text())}


def _died(under_way: str) -> CompileError:
    return CompileError(
        "a compile process died",
        why="it was killed, ran out of memory, or the kernel's file or the code generator crashed it; "
        + under_way,
        remedy="build what was under way alone, with --kernel and --target; fewer processes (-j) need less "
        "memory",
    )


@contextmanager
def compile_executor(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """An executor of ``jobs`` compile processes with TVM loaded. None outlives an exception in the block."""
    with ExitStack() as stack:
        with _main_module_hidden():  # the server that they are forked from is started here, too
            executor = stack.enter_context(_executor(jobs, stack.enter_context(_folder()), _Pool))
        yield executor


class _Pool(ProcessPoolExecutor):
    """Starts processes when tasks come, and has none of them run the caller's script."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As the base class."""
        with _main_module_hidden(), _interrupts_deferred():
            return super().submit(fn, *args, **kwargs)


def _folder() -> tempfile.TemporaryDirectory[str]:
    """Where compile processes write aside, gone with the block."""
    return tempfile.TemporaryDirectory(prefix="tilec-", ignore_cleanup_errors=True)


@contextmanager
def _executor(
    workers: int, folder: str, kind: type[ProcessPoolExecutor] = ProcessPoolExecutor
) -> Iterator[ProcessPoolExecutor]:
    """An executor whose processes are ended when the block is left by an exception."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_PRELOAD])
    resource_tracker.ensure_running()  # it would have Ctrl-C count in what is started after it
    with _interrupts_held(), _working_folder_unsearched(), _short_paths():
        forkserver.ensure_running()
    others = set(multiprocessing.active_children())
    executor = kind(workers, mp_context=context, initializer=_start, initargs=(class_names(), folder))
    try:
        yield executor
    except BaseException:
        results = executor._result_queue
        executor.shutdown(wait=False, cancel_futures=True)
        _end(set(multiprocessing.active_children()) - others)
        # its reader would wait for ever for the rest of what a process was sending when it was ended
        results._writer.close()  # type: ignore[attr-defined]
        raise
    executor.shutdown()


def _start(families: Mapping[str, str], folder: str) -> None:
    """The first that a compile process does. What it and its compilers write aside is in ``folder``, which
    goes when the process has ended, however that was."""
    end_with_caller()
    tempfile.tempdir = os.environ["TMPDIR"] = folder
    register_missing(families)


def _end(processes: set[BaseProcess]) -> None:
    """Ends processes and waits, so that none outlives what it shares with this one."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(_PATIENCE)


@contextmanager
def _working_folder_unsearched() -> Iterator[None]:
    """The server that is started in the block imports nothing from the folder that this process stands in,
    where other modules may have the names of those it needs (from Python 3.11 on). Its children get the path
    of this process."""
    if SAFE_PATH in os.environ:
        yield
        return
    os.environ[SAFE_PATH] = OWN_SAFE_PATH
    try:
        yield
    finally:
        del os.environ[SAFE_PATH]


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
def _short_paths() -> Iterator[None]:
    """Sockets made in the block are in /tmp where the path of TMPDIR leaves their own no room."""
    before = tempfile.gettempdir()
    if len(os.fsencode(before)) + _BEHIND_FOLDER > _SOCKET and os.access("/tmp", os.W_OK):
        tempfile.tempdir = "/tmp"
    try:
        yield
    finally:
        tempfile.tempdir = before


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Programs started in the block, and their children, leave Ctrl-C to this one: they inherit that it is
    held back. One in the block counts at its end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """What handlers do about signals in the block (Ctrl-C, and what ends a command) they do at its end: a
    process that is half started could not be ended. Only the main thread runs handlers; signals that are
    ignored, or end the process at once, go on doing so."""
    in_main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in _ENDING if in_main}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    seen: list[int] = []
    for number in handlers:
        signal.signal(number, lambda number, _frame: seen.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for number in seen:
        signal.raise_signal(number)
