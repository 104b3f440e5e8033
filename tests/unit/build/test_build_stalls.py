"""Compile processes that wait for ever are started again, and what they were to do is done."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from tilec.build.processes import stalls
from tilec.build.processes.attempts import Compilers, run_all


def wait_once(mark: str) -> str:
    """Hangs the first time, as nothing but a lock that nobody frees does."""
    path = Path(mark)
    if path.suffix == ".hangs" and not path.exists():
        path.touch()
        time.sleep(3600)
    return path.name


def work(seconds: float) -> float:
    """Takes CPU time for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return seconds


def test_a_pool_that_stands_still_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stalls, "QUIET", 2.0)
    compilers, found = Compilers(2), dict[int, object]()
    tasks = list(enumerate([str(tmp_path / "one.hangs"), str(tmp_path / "two")]))
    with caplog.at_level(logging.WARNING, "tilec"):
        run_all(compilers, wait_once, tasks, 2, lambda at, made: found.update({at: made}) or True)
    compilers.close()
    assert found == {0: "one.hangs", 1: "two"}
    assert "stand still" in caplog.text


def test_a_pool_that_works_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stalls, "QUIET", 1.0)
    monkeypatch.setattr(stalls, "_LEAST", 0.05)
    compilers, found = Compilers(1), dict[int, object]()
    run_all(compilers, work, [(0, 4.0)], 1, lambda at, made: found.update({at: made}) or True)
    compilers.close()
    assert found == {0: 4.0}
    assert "stand still" not in caplog.text
