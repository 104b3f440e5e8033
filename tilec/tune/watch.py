"""What somebody who watches tuning is told. Methods are called from several threads, one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilec.tune.measure.slots import Slot
from tilec.tune.outcome.results import About, Result, Row
from tilec.tune.plan.planning import Planned
from tilec.tune.plan.problems import Problem


class Watcher:
    """Does nothing; a subclass says what it wants to know."""

    def began(self, problem: Problem, slot: Slot) -> None:
        """A slot took a problem."""

    def planned(self, planned: Planned) -> None:
        """What static analysis left of its configs."""

    def known(self, about: About, device: Mapping[str, Any]) -> None:
        """What a call does at each point, when its arguments are made."""

    def expects(self, problem: Problem, compiles: int, measures: int) -> None:
        """So many more configs will be compiled and measured."""

    def compiled(self, problem: Problem, number: int) -> None:
        """One config was compiled, or could not be."""

    def measured(self, problem: Problem, row: Row, best: float) -> None:
        """One config was measured; ``best`` microseconds so far."""

    def ended(self, result: Result) -> None:
        """A problem has its winner."""

    def warned(self, text: str) -> None:
        """Something that does not stop the work."""
