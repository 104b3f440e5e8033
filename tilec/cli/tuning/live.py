"""What `tilec tune` shows while it works: bars on a terminal, a line for each variant elsewhere."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from tilec.errors import Kind
from tilec.spelling import counted
from tilec.tune.watch import Watcher

if TYPE_CHECKING:
    from tilec.tune.measure.slots import Slot
    from tilec.tune.outcome.results import About, Result, Row
    from tilec.tune.plan.planning import Planned
    from tilec.tune.plan.problems import Problem


def watcher() -> Lines:
    """The display that fits standard error."""
    return Bars() if sys.stderr.isatty() else Lines()


class Lines(Watcher):
    """A line when a variant is done, and one for each mistake that leaves configs out."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def planned(self, planned: Planned) -> None:
        """What is wrong with configs that the kernel does not take, and with values to try, once for all
        variants."""
        kind = Kind.SOURCE.value
        reason = planned.reasons.get(kind)
        if reason is not None and reason not in self._told:
            self._told.add(reason)
            left = counted(planned.counts[kind], "config")
            self.warned(f"{planned.problem.title}: {left} left out: {reason}")
        new = dict.fromkeys(map(str, planned.remarks)).keys() - self._told
        self._told |= new
        for remark in sorted(new):
            self.warned(remark)

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def ended(self, result: Result) -> None:
        """The winner, beside the manifest's own config."""
        click.echo(result_text(result), err=True)

    def warned(self, text: str) -> None:
        """One line."""
        click.echo(f"warning: {text}", err=True)


def result_text(result: Result) -> str:
    """`matmul on sm_90a, M=1..16: 12.5 us, 1.23 x the default; 70 configs, 2 failed, 41 s`."""
    title = result.about.title
    counts = ", ".join(f"{count} {kind}" for kind, count in result.failures.items())
    tail = counted(len(result.rows), "config") + (f" ({counts})" if counts else "")
    tail += f", {result.reused} from the journal" if result.reused else ""
    if result.winner is None:
        return f"{title}: {f'no config works; {tail}' if result.rows else _untried(result)}"
    best, default = result.score(result.winner), result.score(0)
    gain = f", {default / best:.3f} x the default" if math.isfinite(default) else ""
    return f"{title}: {best:.2f} us{gain}; {tail}, {result.seconds:.0f} s"


def _untried(result: Result) -> str:
    """Why no config was tried."""
    if len(result.about.pruned) == len(result.about.configs):
        return f"nothing is left to try: {counted(len(result.about.pruned), 'config')} left out"
    return "time was up before any config"


class Bars(Lines):
    """One bar for compiles, one for measurements, the best so far, and failures by kind."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        super().__init__()
        self._progress = Progress(
            TextColumn("{task.description:>9}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
        )
        self._compiles = self._progress.add_task("compile", total=0, note="")
        self._measures = self._progress.add_task("measure", total=0, note="")
        self._failures: dict[str, int] = {}
        self._least: dict[str, float] = {}

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def began(self, problem: Problem, slot: Slot) -> None:
        """Its name beside the bar of compiles."""
        self._progress.update(self._compiles, note=f"{problem.title} ({slot.text})")

    def known(self, about: About, device: Mapping[str, Any]) -> None:
        """Remembers the roofline, for the share of the limit: of GPUs, whose clocks are known."""
        from tilec.backends.base import backend_of, limits_of
        from tilec.targets import parse_target

        target = parse_target(about.target)
        if not backend_of(target).known_rates:
            return
        limits = limits_of(target, device)
        least = [limits.least_seconds(one.flops, one.bytes, one.dtype) * 1e6 for one in about.points]
        self._least[about.id] = about.score(least)

    def expects(self, problem: Problem, compiles: int, measures: int) -> None:
        """Longer bars."""
        for task, more in ((self._compiles, compiles), (self._measures, measures)):
            total = self._progress.tasks[task].total or 0
            self._progress.update(task, total=total + more)

    def compiled(self, problem: Problem, number: int) -> None:
        """One step."""
        self._progress.advance(self._compiles)

    def measured(self, problem: Problem, row: Row, best: float) -> None:
        """One step, and the best so far."""
        from tilec.portable.runner.judge import OK

        if row.outcome != OK:
            self._failures[row.outcome] = self._failures.get(row.outcome, 0) + 1
        note = "" if math.isinf(best) else f"best {best:.2f} us"
        least = self._least.get(problem.id)
        if note and least:
            note += f", {least / best:.0%} of the limit"
        failures = ", ".join(f"{count} {kind}" for kind, count in self._failures.items())
        self._progress.update(self._measures, advance=1, note=f"{note}  {failures}")

    def ended(self, result: Result) -> None:
        """A line above the bars."""
        self._progress.console.print(result_text(result), markup=False, highlight=False)

    def warned(self, text: str) -> None:
        """A line above the bars."""
        self._progress.console.print(f"warning: {text}", markup=False, highlight=False)
