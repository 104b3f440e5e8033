"""`tune`: all problems of a manifest on all devices, and what is remembered of them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from tilec.backends.base import backend_of
from tilec.cache import Store
from tilec.errors import EnvironmentError_, Place, TilecError, TuneError
from tilec.families import host_family
from tilec.manifest import KernelPlan, Plan, Variant
from tilec.manifest.tuned import TunedEntry, tuned_path
from tilec.portable.runner.journal import Journal
from tilec.portable.runner.process import DeviceMissing
from tilec.settings import read_settings
from tilec.trials.oracle import authors
from tilec.tune.fit.fitted import check_shapes
from tilec.tune.measure.backends import Backend, Local, SlotLost
from tilec.tune.measure.runs import Manner, Run, Surroundings, plan_one
from tilec.tune.measure.slots import Slot, facts
from tilec.tune.outcome.database import write_entries
from tilec.tune.outcome.entries import entry_of
from tilec.tune.outcome.results import Result
from tilec.tune.plan.preview import Preview, preview_of
from tilec.tune.plan.problems import Agenda, Problem, agenda, require_problems
from tilec.tune.plan.sweeps import Sweep
from tilec.tune.watch import Watcher


@dataclass(frozen=True)
class Selection:
    """What to tune: as `agenda`, which says what a ``sweep`` is. ``devices``: "cpu", "cuda:0"; ``threads``:
    of the CPU, 0 for all."""

    targets: Sequence[str] = ()
    kernels: Sequence[str] = ()
    shapes: Path | None = None
    devices: Sequence[str] = ("cpu",)
    threads: int = 0
    sweep: Sweep | None = None


@dataclass(frozen=True)
class Outcome:
    """Results in the order of the manifest, and the entries that were written."""

    plan: Plan
    results: tuple[Result, ...]
    entries: tuple[TunedEntry, ...]
    seconds: float


def journal_path(manifest: Path) -> Path:
    """Where what was measured is kept until it is not needed any more."""
    return manifest.parent / ".tilec-tune" / f"{manifest.stem}.jsonl"


def tune(
    manifest: str | Path,
    selection: Selection = Selection(),
    manner: Manner = Manner(),  # noqa: B008 (frozen)
    *,
    jobs: int = 1,
    backend: Backend | None = None,
    watcher: Watcher | None = None,
    fresh: bool = False,
) -> Outcome:
    """Finds the fastest right config of every variant that has a space, and writes the tuned file.

    ``jobs`` compile processes run while devices measure; ``backend``: where, by default here. ``fresh``: what
    an interrupted run left is measured again.

    Raises InputError where there is nothing to tune, EnvironmentError_ where a device is missing, TuneError
    where results cannot be kept or no device is left."""
    path, start = Path(manifest), time.monotonic()
    settings = read_settings()
    used = backend or Local(selection.devices, jobs=jobs, threads=selection.threads)
    try:
        known = {slot: _facts(used, slot) for slot in used.slots}
        found = _agenda(path, selection, _chooser(selection, list(known.values())))
        for problem in found.problems if selection.sweep is not None else ():
            check_shapes(problem.variant, len(problem.points))
        journal = Journal(journal_path(path))
        records = {} if fresh else {record["key"]: record for record in journal.read() if "key" in record}
        around = Surroundings(
            used,
            manner,
            watcher or Watcher(),
            journal,
            records,
            authors(path),
            Store(settings.cache_dir) if settings.cache else None,
            found.plan.host,
        )
        session = _Session(around, found, known)
        results = session.run()
    finally:
        used.close()
    return Outcome(found.plan, results, session.entries, time.monotonic() - start)


def _agenda(
    manifest: str | Path, selection: Selection, chosen: Callable[[KernelPlan], Sequence[Variant]]
) -> Agenda:
    """What a selection finds to tune among the ``chosen`` variants. InputError where that is nothing."""
    found = agenda(
        manifest,
        targets=selection.targets,
        kernels=selection.kernels,
        shapes=selection.shapes,
        sweep=selection.sweep,
        chosen=chosen,
    )
    require_problems(found)
    return found


def _facts(backend: Backend, slot: Slot) -> dict[str, Any]:
    try:
        return backend.run(slot, facts, slot)
    except DeviceMissing as error:
        raise EnvironmentError_(
            str(error), remedy="choose another with --devices, or --export to a machine that has it"
        ) from error


def _chooser(
    selection: Selection, devices: Sequence[Mapping[str, Any]]
) -> Callable[[KernelPlan], list[Variant]]:
    """Which variants of a kernel the devices run; without named targets, those of the best target that each
    of them runs."""

    def chosen(kernel: KernelPlan) -> list[Variant]:
        wanted = set()
        for device in devices:
            targets = [one.target for one in kernel.variants]
            running = [each for each in targets if backend_of(each).runs_on(device, each)]
            best = max(running, key=lambda target: target.rank, default=None)
            wanted |= {each.name for each in running if selection.targets or each == best}
        return [variant for variant in kernel.variants if variant.target.name in wanted]

    return chosen


class _Session:
    """The problems, and a thread for each slot that takes one after the other."""

    def __init__(self, around: Surroundings, found: Agenda, devices: Mapping[Slot, dict[str, Any]]) -> None:
        self._around, self._agenda, self._devices = around, found, devices
        self._left: queue.SimpleQueue[tuple[int, Problem]] = queue.SimpleQueue()
        self._results: dict[int, Result] = {}
        self._entries: dict[int, TunedEntry] = {}
        self._problem: BaseException | None = None
        self._open = len(found.problems)
        for pair in enumerate(found.problems):
            self._left.put(pair)

    @property
    def entries(self) -> tuple[TunedEntry, ...]:
        """What was written, in the order of the manifest."""
        return tuple(self._entries[number] for number in sorted(self._entries))

    def run(self) -> tuple[Result, ...]:
        """All results. Raises what went wrong in a slot."""
        threads = [
            threading.Thread(target=self._serve, args=(slot, facts), daemon=True)
            for slot, facts in self._devices.items()
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)
        except KeyboardInterrupt:
            self._around.stopped.set()
            raise
        finally:
            self._around.journal.close()
        if self._problem is not None:
            raise self._problem
        if self._open:
            raise TuneError("no device is left to measure on", remedy="run the command again: it goes on")
        return tuple(self._results[number] for number in sorted(self._results))

    def _serve(self, slot: Slot, facts: dict[str, Any]) -> None:
        """Takes problems until there are none."""
        while self._open and not self._around.stopped.is_set():
            try:
                number, problem = self._left.get(timeout=0.2)
            except queue.Empty:
                continue
            try:
                self._solve(number, problem, slot, facts)
            except SlotLost as error:
                self._around.watcher.warned(f"{slot.text} is lost: {error}")
                self._left.put((number, problem))
                return
            except BaseException as error:
                self._problem = _explained(error, self._around.journal.path)
                self._around.stopped.set()

    def _solve(self, number: int, problem: Problem, slot: Slot, facts: dict[str, Any]) -> None:
        self._around.watcher.began(problem, slot)
        result = Run(self._around, problem, slot, facts).result(self._deadline())
        if self._around.stopped.is_set():
            return
        entry = None if problem.is_sweep else entry_of(result)
        with self._around.lock:
            self._results[number] = result
            if entry is not None:
                self._entries[number] = entry
                write_entries(tuned_path(self._agenda.plan.path), [entry])
            self._open -= 1
            self._around.watcher.ended(result)

    def _deadline(self) -> float:
        """When the problem at hand has had its part of the budget."""
        budget = self._around.manner.budget
        if budget is None:
            return float("inf")
        now = time.monotonic()
        left = budget - (now - self._around.start)
        return now + max(left, 0.0) * len(self._devices) / max(self._open, 1)


def _explained(error: BaseException, journal: Path) -> BaseException:
    """A disk that is full is no defect."""
    if not isinstance(error, OSError) or isinstance(error, TilecError):
        return error
    made = TuneError(
        "what was measured cannot be kept",
        place=Place(error.filename or str(journal)),
        why=error.strerror or str(error),
        remedy="make room, and run the same command again: it goes on where it was",
    )
    made.__cause__ = error
    return made


def preview(
    manifest: str | Path,
    selection: Selection = Selection(),
    manner: Manner = Manner(),  # noqa: B008 (frozen)
    *,
    jobs: int = 1,
) -> list[Preview]:
    """What `tune` would do, without a compiler or a device: of the targets that are named, else of those that
    this CPU runs."""
    named = attrgetter("variants")
    chosen = named if selection.targets else _chooser(selection, [host_family().device_at(0).facts()])
    found = _agenda(manifest, selection, chosen)
    backend = Local((), jobs=jobs)
    try:
        return [
            preview_of(
                plan_one(backend, problem, None, selection.threads), manner.strategy, manner.trials, jobs
            )
            for problem in found.problems
        ]
    finally:
        backend.close()
