"""What runs once in a process, whichever threads ask for it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tilec.codegen.once import once


def test_threads_that_come_second_wait_for_the_first():
    begun, ended = [], []
    together = threading.Barrier(4)

    @once
    def slow():
        begun.append(threading.get_ident())
        time.sleep(0.05)
        ended.append(threading.get_ident())

    def ask(_):
        together.wait()
        slow()
        return len(ended)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [1, 1, 1, 1]
    assert len(begun) == 1


def test_what_has_failed_runs_again():
    calls = []

    @once
    def first_time_unlucky():
        calls.append(1)
        if len(calls) == 1:
            raise OSError("not yet")

    with pytest.raises(OSError, match="not yet"):
        first_time_unlucky()
    first_time_unlucky()
    first_time_unlucky()
    assert len(calls) == 2
