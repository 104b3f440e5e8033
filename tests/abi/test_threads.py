"""Threads: the caller's, the library's own, a GOMP that is already there, a forked child."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tilec.package.write import BuildReport

#: The benchmark of warm calls, whose counters these tests use too.
DISPATCH = Path(__file__).resolve().parents[2] / "benchmarks" / "dispatch"


def run(command: list[str | Path], **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=60)


@pytest.fixture
def threads(program: Callable[..., Path]) -> Path:
    return program("threads.c", "-std=gnu11")


@pytest.mark.parametrize("count", ["1", "2", "7", "70"])  # 70: more than ranges of a job
def test_own_pool(threads: Path, count: str) -> None:
    done = run([threads], TILEC_NUM_THREADS=count)
    assert (done.stdout, done.returncode) == ("ok\n", 0)


@pytest.mark.parametrize("count", ["1", "3"])
def test_warm_calls_neither_allocate_nor_lock(program: Callable[..., Path], count: str) -> None:
    done = run([program("warm.c", "-std=gnu11", f"-I{DISPATCH}")], TILEC_NUM_THREADS=count)
    assert (done.stdout, done.returncode) == ("0 0 0\n", 0)


def test_a_bad_thread_count_is_said_and_ignored(threads: Path) -> None:
    done = run([threads], TILEC_NUM_THREADS="many", TILEC_LOG="warn")
    assert done.returncode == 0
    assert "TILEC_NUM_THREADS=many is ignored" in done.stderr


WITH_TORCH = """
import os, sys
import torch
from tilec.portable.loader import load
assert torch.ones(1 << 20).sum() > 0  # its threads are up
lib = load(sys.argv[1])
a = torch.arange(1 << 16, dtype=torch.float32)
c, wanted = torch.empty_like(a), (2 * a).numpy()
lib.add(a, a, c)
assert (c.numpy() == wanted).all()
child = os.fork()
if child == 0:  # where an operation of torch itself would wait for ever
    c.numpy()[:] = 0
    lib.add(a, a, c)
    os._exit(0 if (c.numpy() == wanted).all() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_gomp_of_torch_is_used_and_left_in_a_forked_child(sample: BuildReport) -> None:
    pytest.importorskip("torch", reason="torch brings the GOMP of this test")
    done = run([sys.executable, "-c", WITH_TORCH, sample.library], TILEC_LOG="info", OMP_NUM_THREADS="2")
    assert done.returncode == 0, done.stderr
    assert "threads: using" in done.stderr
    assert "libgomp" in done.stderr


KEPT_CPUS = """
import os, sys, time
import numpy
from tilec.portable.loader import load
allowed = os.sched_getaffinity(0)
lib, a = load(sys.argv[1]), numpy.ones(1 << 22, numpy.float32)
for pause in (0, 0.002) * 20:  # workers that spin, and workers that sleep
    c = numpy.zeros_like(a)
    time.sleep(pause)
    lib.add(a, a, c)
    assert (c == 2).all()
tasks = os.listdir("/proc/self/task")
assert len(tasks) >= 3
assert all(os.sched_getaffinity(int(task)) == allowed for task in tasks)
"""


@pytest.mark.parametrize("cpus", [None, 1], ids=["all", "one"])
def test_workers_may_use_the_cpus_that_they_had(sample: BuildReport, cpus: int | None) -> None:
    chosen = sorted(os.sched_getaffinity(0))[:cpus]
    bound = f"import os\nos.sched_setaffinity(0, {chosen})\n"
    done = run([sys.executable, "-c", bound + KEPT_CPUS, sample.library], TILEC_NUM_THREADS="3")
    assert done.returncode == 0, done.stderr


FEWER_WORKERS = """
import os, sys
import torch
from tilec.portable.loader import load
torch.set_num_threads(4)
lib, a = load(sys.argv[1]), torch.ones(1 << 22)
c = torch.empty_like(a)
lib.add(a, a, c)
before = set(os.listdir("/proc/self/task"))
lib.add(a, a, c, num_workers=2)
lib.add(a, a, c)
assert len(before) >= 4 and before == set(os.listdir("/proc/self/task"))
"""


def test_threads_of_gomp_outlive_a_call_of_fewer_workers(sample: BuildReport) -> None:
    pytest.importorskip("torch", reason="torch brings the GOMP of this test")
    done = run([sys.executable, "-c", FEWER_WORKERS, sample.library])
    assert done.returncode == 0, done.stderr


INSIDE_A_REGION = """
import ctypes, sys
import torch
from tilec.portable.loader import load
path = next(line.split()[-1] for line in open("/proc/self/maps") if "libgomp" in line)
gomp, lib = ctypes.CDLL(path), load(sys.argv[1])
a, wrong = torch.arange(1 << 12, dtype=torch.float32), []
wanted = (2 * a).numpy()

@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def body(_):
    c = torch.empty_like(a)
    lib.add(a, a, c)
    if not (c.numpy() == wanted).all():
        wrong.append(1)

lib.add(a, a, torch.empty_like(a))
gomp.GOMP_parallel(body, None, 2, 0)
assert not wrong
"""


def test_a_call_inside_a_parallel_region_is_serial(sample: BuildReport) -> None:
    pytest.importorskip("torch", reason="torch brings the GOMP of this test")
    done = run(
        [sys.executable, "-c", INSIDE_A_REGION, sample.library],
        TILEC_LOG="debug",
        OMP_NUM_THREADS="2",
        OMP_DYNAMIC="false",
    )
    assert done.returncode == 0, done.stderr
    workers = [line.rpartition(", ")[2] for line in done.stderr.splitlines() if "variant" in line]
    assert workers == ["2 workers", "1 workers", "1 workers"]
