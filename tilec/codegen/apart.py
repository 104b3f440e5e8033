"""Runs a compiler of another's in a child process: where it crashes, the build does not."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing import Pipe
from typing import TYPE_CHECKING, NoReturn, TypeVar

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Result = TypeVar("Result")

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl


class Died(RuntimeError):
    """A child ended before it told anything: by a signal, whose name is the message."""


def apart(work: Callable[[], Result]) -> Result:
    """What ``work`` returns or raises, both of which can be pickled. It runs here where there are no such
    children, or other threads of Python: what these hold at the time, a child would wait for."""
    if not sys.platform.startswith("linux") or threading.active_count() > 1:
        return work()
    reader, writer = Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        _tell(work, writer)
    writer.close()
    try:
        returned, value = reader.recv()
    except EOFError:
        returned, value = False, None
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise Died(signal.Signals(os.WTERMSIG(status)).name)
    if not returned:
        raise value or Died(f"exit code {os.waitstatus_to_exitcode(status)}")
    found: Result = value
    return found


def die_with_parent() -> None:
    """Linux alone: this process is killed when the one that forked it ends."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def _tell(work: Callable[[], object], writer: Connection) -> NoReturn:
    """The child: writes whether it returned, and what it returned or raised. A crash is the parent's to
    tell, so that what libraries print of it goes nowhere."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stderr__.fileno() if sys.__stderr__ else 2)
    told: tuple[bool, object]
    try:
        told = True, work()
    except Exception as problem:
        told = False, problem
    writer.send(told)
    os._exit(0)
