"""What authors' code does to end the process is an error of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ends_refused() -> Iterator[None]:
    """In the block `os._exit`, too, raises SystemExit, as `sys.exit` does: the process would end without a
    word, and the command with whatever code the file chose. Other threads and processes forked in the block
    end as they do elsewhere."""
    ended, owner = os._exit, (os.getpid(), threading.get_ident())

    def refused(status: int) -> None:
        if (os.getpid(), threading.get_ident()) != owner:
            ended(status)
        raise SystemExit(f"os._exit({status})")

    os._exit = refused  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = ended
