"""How many cores this process may use, as libraries count them (`runtime_c/src/system/system_cpus.c`)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

_GROUPS, _ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_CONTROLLER = "cpu"


def usable_cores() -> int:
    """Those it is bound to, and no more than its control groups grant."""
    return min(len(os.sched_getaffinity(0)), granted_cores(_GROUPS, _ROOT) or os.cpu_count() or 1)


def granted_cores(groups: Path, root: Path) -> int | None:
    """The least number of cores whose time the groups of a list grant, a part of one as a whole one; None
    without a limit. ``root`` is where their files are."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return None
    shares = [share for line in lines for share in _shares(line, root)]
    return math.ceil(min(shares)) if shares else None


def _shares(line: str, root: Path) -> Iterator[float]:
    """The cores that the group of a line, "ID:CONTROLLERS:PATH", and those above it have; the second version
    has one group without controllers."""
    _, names, path = f"{line}::".split(":", 2)
    if names and _CONTROLLER not in names.split(","):
        return
    top = root / _CONTROLLER if names else root
    folder = top / path.removesuffix("::").strip("/")
    for group in (folder, *folder.parents):
        quota, period = _quota(group)
        if quota > 0 and period > 0:
            yield quota / period
        if group == top:
            return


def _quota(group: Path) -> tuple[float, float]:
    """Microseconds of each period; 0 where there is no limit."""
    both = _words(group / "cpu.max")
    if not both:
        both = [*_words(group / "cpu.cfs_quota_us"), *_words(group / "cpu.cfs_period_us")]
    try:
        quota, period = map(float, both)
    except ValueError:
        return 0, 0
    return quota, period


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
