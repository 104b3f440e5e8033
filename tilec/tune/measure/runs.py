"""One problem in one slot: compile ahead, measure what is ready, let finalists run in turns."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tilec.backends.base import limits_of
from tilec.build.processes.attempts import run_all
from tilec.build.records import CompiledVariant
from tilec.build.reuse.compiled import find, keep
from tilec.build.schedules.cost import tensor_bytes
from tilec.build.schedules.examine import Examined, Refused, examine
from tilec.cache import Store
from tilec.errors import Kind
from tilec.families import family_of
from tilec.portable.runner.journal import Journal
from tilec.portable.runner.judge import OK, PAUSE, POINT, ROUNDS, UNCOMPILED, finalists, outcome_of
from tilec.trials.oracle import Author
from tilec.tune.measure.backends import Backend
from tilec.tune.measure.candidates import Made, Uncompiled, compile_safely, entry_name, link, registers_text
from tilec.tune.measure.search import Trial, strategy_of
from tilec.tune.measure.slots import Parcel, Slot, ask, parcel_of
from tilec.tune.outcome.results import (
    About,
    Final,
    PointFacts,
    Result,
    Row,
    about,
    finals_of,
    scores_of,
    winner_of,
)
from tilec.tune.plan.contents import write_problem
from tilec.tune.plan.planning import Planned, plan_problem
from tilec.tune.plan.problems import Problem
from tilec.tune.watch import Watcher

#: Candidates of one library, at most: what is ready is linked together, as a link takes most of a second.
_BATCH = 8
#: Names the way of measuring: what was measured in another way is measured again.
_PROTOCOL = 2


@dataclass(frozen=True)
class Manner:
    """How problems are tuned. ``timeout``: seconds that a config may take; ``cold``: whether inputs are in no
    cache, None for what is usual: cold on a GPU, warm on a CPU; ``budget``: seconds for all problems."""

    strategy: str = "halving"
    trials: int | None = None
    timeout: float = 30.0
    cold: bool | None = None
    budget: float | None = None


@dataclass
class Surroundings:
    """What the runs of all problems share. ``known``: records of the journal by key."""

    backend: Backend
    manner: Manner
    watcher: Watcher
    journal: Journal
    known: dict[str, dict[str, Any]]
    authors: Mapping[str, Author]
    store: Store | None
    host: Any
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopped: threading.Event = field(default_factory=threading.Event)
    start: float = field(default_factory=time.monotonic)

    def record(self, record: Mapping[str, Any]) -> None:
        """Puts a record on the disk."""
        with self.lock:
            self.journal.add(record)
            self.known[record["key"]] = dict(record)


def plan_one(
    backend: Backend,
    problem: Problem,
    facts: Mapping[str, Any] | None,
    threads: int = 0,
    goes_on: Callable[[], bool] = lambda: True,
) -> Planned:
    """A problem, analysed and ordered. ``facts``: of the device, None for a usual one. Raises what the source
    of a kernel refuses in every config alike: no other one would do."""
    found: dict[int, Examined | Refused] = {}

    def done(number: int, made: Examined | Refused | None) -> bool:
        found[number] = made or Refused("other", "the process that lowers it died")
        return goes_on()

    tasks = [(number, problem.candidate(number)) for number in range(len(problem.configs))]
    run_all(backend.compilers, examine, tasks, backend.at_once, done)
    examined = [found.get(number, Refused("other", "interrupted")) for number, _ in tasks]
    _check_source(examined)
    signature = next((one.signature for one in examined if isinstance(one, Examined)), None)
    params = () if signature is None else signature.params
    limits = limits_of(problem.variant.target, facts, threads)
    return plan_problem(problem, examined, limits, lambda point: tensor_bytes(params, point.dims))


def _check_source(examined: Sequence[Examined | Refused]) -> None:
    refused = [one for one in examined if isinstance(one, Refused) and one.kind == Kind.SOURCE.value]
    reasons = {one.reason for one in refused}
    if refused and len(refused) == len(examined) and len(reasons) == 1 and refused[0].error is not None:
        raise refused[0].error


class Run:
    """The search for the best config of one problem in one slot."""

    def __init__(self, around: Surroundings, problem: Problem, slot: Slot, facts: Mapping[str, Any]) -> None:
        self.around, self.problem, self.slot, self.device = around, problem, slot, facts
        self.rows: dict[int, Row] = {}
        self.reused = 0
        self.compiler = ""
        self.points: tuple[PointFacts, ...] = ()
        self._libraries: dict[int, Parcel] = {}
        self._details: dict[int, str] = {}
        self._parcel: Parcel | None = None
        self._start = time.monotonic()

    def result(self, deadline: float) -> Result:
        """Tunes until everything is measured or ``deadline`` (of the monotonic clock) has come. Raises
        SlotLost, OSError for a journal that cannot be written."""
        around = self.around
        planned = plan_one(
            around.backend,
            self.problem,
            self.device,
            self.slot.threads,
            lambda: not around.stopped.is_set(),
        )
        self._planned = planned
        around.watcher.planned(planned)
        if not planned.order:
            return self._ended({})
        manner = around.manner
        strategy = strategy_of(manner.strategy, planned, manner.trials, around.backend.at_once)
        with TemporaryDirectory(prefix="tilec-tune-") as folder:
            self._folder = Path(folder)
            while not self._must_stop(deadline):
                trials = strategy.next_round(self.scores())
                if not trials:
                    break
                self._round(trials, deadline)
            finals = {} if around.stopped.is_set() else self._finals()
        return self._ended(finals)

    @property
    def about(self) -> About:
        """The problem with what is known of it by now."""
        return about(self._planned, self.points, self.compiler or tvm_version())

    def scores(self) -> dict[int, float]:
        """Microseconds of each config that was tried."""
        return scores_of(self.about, list(self.rows.values()))

    # ---- rounds ----

    def _round(self, trials: Sequence[Trial], deadline: float) -> None:
        left = [trial for trial in trials if not self._known(trial)]
        self.around.watcher.expects(
            self.problem, sum(trial.number not in self._libraries for trial in left), len(left)
        )
        by_number = {trial.number: trial for trial in left}
        for numbers in self._ready(list(by_number), deadline):
            for number in numbers:
                if self._must_stop(deadline):
                    return
                self._measure(by_number[number])

    def _known(self, trial: Trial) -> bool:
        """Takes a row that an earlier run left in the journal."""
        record = self.around.known.get(self._key(trial))
        if record is None:
            return False
        self.reused += trial.number not in self.rows
        self._add(Row(trial.number, record["outcome"], tuple(record["points"]), record["detail"]))
        return True

    def _key(self, trial: Trial) -> str:
        config = self.problem.configs[trial.number]
        how = f"{_PROTOCOL} {trial.seconds} {self._is_cold()} {self.slot.threads}"
        return self.problem.key(config, self.device["name"], str(self.device["driver"]), how)

    def _ready(self, numbers: Sequence[int], deadline: float) -> Iterator[list[int]]:
        """The configs whose libraries are there, in batches, as they are compiled."""
        yield [number for number in numbers if number in self._libraries]
        missing = [number for number in numbers if number not in self._libraries]
        made: queue.SimpleQueue[tuple[int, Made | None] | BaseException | None] = queue.SimpleQueue()
        thread = threading.Thread(target=self._compile, args=(missing, deadline, made), daemon=True)
        thread.start()
        at_end = False
        while not at_end:
            batch, at_end = _drained(made)
            compiled = {number: code for number, one in batch if (code := self._code(number, one))}
            if compiled:
                self._link(compiled)
                yield list(compiled)
        thread.join()

    def _compile(self, numbers: Sequence[int], deadline: float, out: queue.SimpleQueue[Any]) -> None:
        """Puts what becomes of configs into ``out``, then None; runs in a thread of its own."""
        store, variants = self.around.store, {number: self.problem.candidate(number) for number in numbers}
        found = {number: None if store is None else find(store, variants[number]) for number in numbers}

        def done(number: int, made: Made | None) -> bool:
            if store is not None and isinstance(made, CompiledVariant):
                _keep(store, variants[number], made)
            out.put((number, made))
            return not self._must_stop(deadline)

        try:
            for number, one in found.items():
                if one is not None:
                    out.put((number, one))
            tasks = [(number, variants[number]) for number in numbers if found[number] is None]
            backend = self.around.backend
            run_all(backend.compilers, compile_safely, tasks, backend.at_once, done)
        except BaseException as error:
            out.put(error)
        out.put(None)

    def _code(self, number: int, made: Made | None) -> CompiledVariant | None:
        """The code of a config; what has none becomes a row."""
        self.around.watcher.compiled(self.problem, number)
        if isinstance(made, CompiledVariant):
            self.compiler = made.record.image.compiler or self.compiler
            return made
        reason = made.reason if isinstance(made, Uncompiled) else "the compile process died"
        self._add(Row(number, UNCOMPILED, detail=reason, seconds=self._elapsed()))
        return None

    def _link(self, compiled: Mapping[int, CompiledVariant]) -> None:
        path = self._folder / "libraries" / f"{min(compiled)}-{len(self._libraries)}" / "candidates.so"
        link(compiled, self.around.host, path, self.problem.kernel.tolerance)
        parcel = parcel_of(path.parent)
        for number, one in compiled.items():
            self._libraries[number] = parcel
            self._details[number] = registers_text(one)

    def _measure(self, trial: Trial) -> None:
        library = self._libraries[trial.number]
        request = {
            "do": "measure",
            **self._candidate(trial.number),
            "seconds": trial.seconds,
            "cold": self._is_cold(),
        }
        each = trial.seconds + (POINT if self.problem.is_sweep else 0.0)
        patience = self.around.manner.timeout + each * len(self.problem.points)
        answer = self._ask(request, patience, library)
        outcome, points, detail = outcome_of(answer)
        detail = self._details.get(trial.number, "") if outcome == OK else detail
        row = Row(trial.number, outcome, tuple(points), detail, self._elapsed())
        self.around.record(
            {
                "key": self._key(trial),
                "problem": self.problem.id,
                "config": dict(self.problem.configs[trial.number]),
                "device": self.device["name"],
                "outcome": row.outcome,
                "points": list(row.points),
                "detail": row.detail,
            }
        )
        self._add(row)

    # ---- finals ----

    def _finals(self) -> dict[int, Final]:
        numbers = finalists(self.scores(), (0, self.problem.incumbent))
        if self.problem.is_sweep or not numbers:
            return {}
        for _ in self._ready([n for n in numbers if n not in self._libraries], math.inf):
            pass
        numbers = [number for number in numbers if number in self._libraries]
        request = {
            "do": "compare",
            "folder": self._contents_folder(),
            "candidates": [[one["library"], one["entry"]] for one in map(self._candidate, numbers)],
            "rounds": ROUNDS,
            "pause": PAUSE,
            "cold": self._is_cold(),
        }
        patience = self.around.manner.timeout * (1 + len(numbers))
        parcels = {parcel.name: parcel for parcel in map(self._libraries.__getitem__, numbers)}
        answer = self._ask(request, patience, *parcels.values())
        return finals_of(self.about, numbers, answer)

    # ---- the slot ----

    def _ask(self, request: Mapping[str, Any], patience: float, *libraries: Parcel) -> dict[str, Any]:
        parcels = [one for one in (self._parcel, *libraries) if one is not None]
        return self.around.backend.run(self.slot, ask, self.slot, request, patience, parcels)

    def _contents_folder(self) -> str:
        if self._parcel is None:
            author = self.around.authors.get(self.problem.variant.kernel, Author())
            self.points = write_problem(self._folder / "problem", self._planned, author)
            self.around.watcher.known(self.about, self.device)
            self._parcel = parcel_of(self._folder / "problem")
        return f"{{{self._parcel.name}}}"

    def _candidate(self, number: int) -> dict[str, str]:
        library = f"{{{self._libraries[number].name}}}/candidates.so"
        return {"folder": self._contents_folder(), "library": library, "entry": entry_name(number)}

    def _is_cold(self) -> bool:
        cold = self.around.manner.cold
        return not family_of(self.problem.variant.target).on_host if cold is None else cold

    # ---- small helpers ----

    def _add(self, row: Row) -> None:
        self.rows.pop(row.number, None)  # the last one of a config, in the order in which they came
        self.rows[row.number] = row
        best = min(self.scores().values(), default=math.inf)
        with self.around.lock:
            self.around.watcher.measured(self.problem, row, best)

    def _elapsed(self) -> float:
        return time.monotonic() - self._start

    def _must_stop(self, deadline: float) -> bool:
        return self.around.stopped.is_set() or time.monotonic() > deadline

    def _ended(self, finals: Mapping[int, Final]) -> Result:
        winner = winner_of(self.about, self.scores(), finals)
        rows = tuple(self.rows.values())
        return Result(
            self.about, rows, finals, self.device, winner, self._elapsed(), self.reused, self.slot.threads
        )


def _drained(made: queue.SimpleQueue[Any]) -> tuple[list[tuple[int, Made | None]], bool]:
    """What is ready, at least one and at most a batch, and whether that was all."""
    batch: list[tuple[int, Made | None]] = []
    while len(batch) < _BATCH:
        try:
            item = made.get(block=not batch)
        except queue.Empty:
            break
        if item is None:
            return batch, True
        if isinstance(item, BaseException):
            raise item
        batch.append(item)
    return batch, False


def _keep(store: Store, variant: Any, made: CompiledVariant) -> None:
    """A cache that cannot be written costs time later."""
    try:
        keep(store, variant, made)
    except OSError:
        return


def tvm_version() -> str:
    """What makes CPU code."""
    import importlib.metadata

    return f"tvm {importlib.metadata.version('apache-tvm')}"
