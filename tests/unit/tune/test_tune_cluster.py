"""A cluster of two workers, one of which is killed while it works."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilec.tune import Manner, Result, Selection, Watcher, tune
from tilec.tune.outcome.results import Row
from tilec.tune.plan.problems import Problem

pytestmark = pytest.mark.slow

distributed = pytest.importorskip("distributed", reason="distributed is not installed")


class Killer(Watcher):
    """Kills the worker of the slot that measures first, when it has measured something."""

    def __init__(self, client: Any) -> None:
        self.pids = client.run(os.getpid)
        self.slots: dict[str, str] = {}
        self.killed = ""
        self.warnings: list[str] = []
        self.after: list[str] = []

    def began(self, problem: Problem, slot: Any) -> None:
        self.slots[problem.id] = slot.host

    def measured(self, problem: Problem, row: Row, best: float) -> None:
        if not self.killed:
            self.killed = self.slots[problem.id]
            os.kill(self.pids[self.killed], signal.SIGKILL)

    def ended(self, result: Result) -> None:
        self.after.append(self.slots[result.about.id])

    def warned(self, text: str) -> None:
        self.warnings.append(text)


def test_a_lost_worker_costs_no_variant(manifest: Callable[..., Path]) -> None:
    from tilec.tune.measure.cluster import Cluster

    path = manifest("block = [32, 128]\npoints = [17, 1000]")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options, silence_logs=50) as cluster,
        distributed.Client(cluster) as client,
    ):
        killer = Killer(client)
        backend = Cluster(cluster.scheduler_address, ["cpu"], threads=1)
        assert len(backend.slots) == 2
        outcome = tune(path, Selection(threads=1), Manner("exhaustive"), backend=backend, watcher=killer)
    assert [result.winner is not None for result in outcome.results] == [True, True]
    assert any(killer.killed in text for text in killer.warnings)
    assert killer.killed not in killer.after
    assert path.with_suffix(".tuned.toml").exists()
