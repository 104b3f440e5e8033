"""What authors' code does to end the process is an error of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: What ends a process; the processes and threads in which that is refused, and what keeps these in order.
_ENDED, _REFUSING, _LOCK = os._exit, list[tuple[int, int]](), threading.Lock()


@contextmanager
def ends_refused() -> Iterator[None]:
    """In the block `os._exit`, too, raises SystemExit, as `sys.exit` does: the process would end without a
    word, and the command with whatever code the file chose. Other threads and processes forked in the block
    end as they do elsewhere; blocks of several threads may overlap."""
    owner = os.getpid(), threading.get_ident()
    with _LOCK:
        _REFUSING.append(owner)
        os._exit = _end  # type: ignore[assignment]
    try:
        yield
    finally:
        with _LOCK:
            _REFUSING.remove(owner)
            if not _REFUSING:
                os._exit = _ENDED


def _end(status: int) -> None:
    if (os.getpid(), threading.get_ident()) in _REFUSING:
        raise SystemExit(f"os._exit({status})")
    _ENDED(status)
