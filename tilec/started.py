"""When tilec was imported. What Python has loaded of a file that was written later nobody knows."""

from __future__ import annotations

import os
import time

_STARTED = time.time_ns()


def is_as_loaded(path: str) -> bool:
    """Whether a file, as far as there is one, was written before tilec was imported, so that its text is what
    this process has loaded of it."""
    try:
        return os.stat(path).st_mtime_ns <= _STARTED
    except OSError:
        return True
