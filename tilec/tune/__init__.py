"""Tuning: find the fastest config that is right, remember it, show it.

    outcome = tune("llm.toml", Selection(kernels=["matmul*"], devices=["cuda:0"]), Manner(trials=40))

space and points (what may be chosen, where it is measured) -> examine, cost, planning (what is worth
compiling, best first) -> runs on backends (compile ahead, measure in slots) -> results -> entries, database.
"""

from __future__ import annotations

from tilec.tune.engine import Outcome, Selection, tune
from tilec.tune.measure.runs import Manner
from tilec.tune.outcome.results import Result, Row
from tilec.tune.plan.problems import Agenda, Problem, agenda
from tilec.tune.watch import Watcher

__all__ = [
    "tune", "Selection", "Manner", "Watcher", "Outcome", "Result", "Row", "agenda", "Agenda", "Problem",
]  # fmt: skip
