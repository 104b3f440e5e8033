"""Compile processes that wait for ever: found by the CPU time that they and their children no longer take."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from concurrent.futures import Executor
from pathlib import Path

_LOG = logging.getLogger("tilec")
#: Seconds without a result after which a pool is looked at, and the CPU seconds that work takes meanwhile.
QUIET, _LEAST = 60.0, 1.0
_TICKS = 100  # a second; USER_HZ of Linux


class StallWatch:
    """Looks at the processes of a pool whenever `QUIET` seconds have brought no result."""

    def __init__(self) -> None:
        self._seen: dict[int, float] = {}
        self._since = time.monotonic()

    def end_if_stalled(self, executor: Executor) -> None:
        """Kills the pool's processes where none of them, and nothing that they started, has worked since the
        last look: what they were doing then fails as that of a process that died."""
        processes = getattr(executor, "_processes", None) or {}
        used = _cpu_seconds(processes)
        known = {pid: seconds for pid, seconds in used.items() if pid in self._seen}
        worked = sum(seconds - self._seen[pid] for pid, seconds in known.items())
        is_new = not known or len(used) > len(known)
        self._seen = used
        if is_new or worked >= _LEAST:
            return
        waited = time.monotonic() - self._since
        _LOG.warning(
            "%d compile processes stand still after %.0f s and are started again", len(processes), waited
        )
        for process in list(processes.values()):
            process.kill()


def _cpu_seconds(pids: Iterable[int]) -> dict[int, float]:
    """By process, the time of it, of its children that ended, and of the descendants that run."""
    found = dict(filter(None, map(_stat, Path("/proc").glob("[0-9]*/stat"))))
    own = set(pids)
    while more := {pid for pid, (parent, _) in found.items() if parent in own} - own:
        own |= more
    return {pid: found[pid][1] for pid in own if pid in found}


def _stat(path: Path) -> tuple[int, tuple[int, float]] | None:
    """(pid, (parent, seconds)), see proc(5)."""
    try:
        fields = path.read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(path.parent.name), (int(fields[1]), sum(map(int, fields[11:15])) / _TICKS)
