"""Threads by default: what control groups grant of the CPUs, by files as Linux shows them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tilec.portable.cores import granted_cores

SOURCES = Path(__file__).resolve().parents[2] / "runtime_c" / "src"
NO_LIMIT = 1024
GROUPS = {
    "no_group": ("", {}, NO_LIMIT),
    "no_limit": ("0::/\n", {"cpu.max": "max 100000\n"}, NO_LIMIT),
    "whole": ("0::/\n", {"cpu.max": "400000 100000\n"}, 4),
    "a_part_counts_as_one": ("0::/\n", {"cpu.max": "150000 100000\n"}, 2),
    "less_than_one": ("0::/\n", {"cpu.max": "5000 100000\n"}, 1),
    "the_least_upwards": (
        "0::/a/b\n",
        {"a/b/cpu.max": "800000 100000\n", "a/cpu.max": "300000 100000\n", "cpu.max": "max 100000\n"},
        3,
    ),
    "first_version": (
        "5:cpuset:/\n4:cpu,cpuacct:/a\n",
        {"cpu/a/cpu.cfs_quota_us": "250000\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
        3,
    ),
    "first_version_without_limit": (
        "4:cpuacct,cpu:/\n",
        {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
        NO_LIMIT,
    ),
    "other_controllers": ("5:cpuset:/\n", {"cpu.max": "100000 100000\n"}, NO_LIMIT),
    "no_numbers": ("0::/\n", {"cpu.max": "\n"}, NO_LIMIT),
}


@pytest.mark.parametrize(("groups", "files", "cpus"), GROUPS.values(), ids=list(GROUPS))
def test_the_least_limit_counts(
    program: Callable[..., Path], tmp_path: Path, groups: str, files: Mapping[str, str], cpus: int
) -> None:
    (tmp_path / "groups").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    quota = program("quota.c", "-std=gnu11", "-Wno-unused-function", f"-I{SOURCES}", linked=False)
    done = subprocess.run(
        [quota, tmp_path / "groups", tmp_path / "root"], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == cpus
    assert (granted_cores(tmp_path / "groups", tmp_path / "root") or NO_LIMIT) == cpus


def test_a_bound_process_has_as_many_threads_as_cpus(program: Callable[..., Path]) -> None:
    one = {min(os.sched_getaffinity(0))}
    done = subprocess.run(
        [program("threads.c", "-std=gnu11")],
        env={**os.environ, "TILEC_LOG": "debug"},
        preexec_fn=lambda: os.sched_setaffinity(0, one),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("ok\n", 0)
    assert set(re.findall(r", (\d+) workers", done.stderr)) == {"1", "3"}  # 3: the program's own parallel_for
