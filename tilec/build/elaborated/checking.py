"""Whether the kernels of a manifest are right, without compiling, and what their authors are to be told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tilec.build.elaborated.asked import asked_roads, remarks_on_roads
from tilec.build.elaborated.device_limits import check_limits
from tilec.build.elaborated.frontend import elaborate_variant, naming
from tilec.build.elaborated.idle_keys import has_cpus_alone, idle_on_cpus, remarks_on_cpus
from tilec.build.elaborated.sampling import Choice, distinct, sampled
from tilec.build.elaborated.value_kinds import remarks_on_space
from tilec.build.processes.pool import run_tasks
from tilec.build.reuse.kept_checks import find_remarks, keep_remarks
from tilec.cache import Store
from tilec.errors import Remark
from tilec.manifest import Plan, Variant
from tilec.manifest.model import Tune
from tilec.settings import read_settings

if TYPE_CHECKING:
    from pathlib import Path

    from tilec.ir.nodes import Kernel


class Checked(NamedTuple):
    """What the authors of a plan are to be told, each remark once; ``elaborated`` of ``total`` different
    choices of guards and config were made into tile IR."""

    remarks: tuple[Remark, ...]
    elaborated: int
    total: int


def check_sources(
    plan: Plan,
    jobs: int,
    *,
    every: bool = False,
    progress: Callable[[int, int, str], None] = lambda done, total, title: None,
) -> Checked:
    """Elaborates and verifies the tile IR of a plan, and lowers variants that ask for a road: each choice of
    guards and config, or a sample of thousands (`tilec.build.elaborated.sampling`) unless ``every`` one is
    asked for. What the cache knows of a choice is not asked again. Raises what `elaborate_variant` and
    lowering raise, and UnsupportedError for what no device of a target has."""
    choices = distinct(plan)
    chosen = choices if every else sampled(choices)
    tables = {kernel.name: kernel.entry.tune for kernel in plan.kernels}
    alone = has_cpus_alone(plan)
    work = _Work([_Task(one, tables[one.variant.kernel], alone) for one in chosen], progress)
    work.run(jobs)
    return Checked(work.remarks(), len(chosen), len(choices))


class _Work:
    """The choices of one check on their way from the cache or a compile process."""

    def __init__(self, tasks: Sequence[_Task], progress: Callable[[int, int, str], None]) -> None:
        settings = read_settings()
        self._tasks = tasks
        self._store = Store(settings.cache_dir) if settings.cache else None
        self._progress = progress
        self._found: dict[int, tuple[Remark, ...]] = {}

    def run(self, jobs: int) -> None:
        """Finishes every choice."""
        for at, task in enumerate(self._tasks):
            known = None if self._store is None else find_remarks(self._store, task.variants, *task.facts)
            if known is not None:
                self._finish(at, known)
        left = [at for at in range(len(self._tasks)) if at not in self._found]

        def done(number: int, made: _Answer) -> None:
            self._keep(self._tasks[left[number]], made)
            self._finish(left[number], made.remarks)

        run_tasks(_check_one, [self._tasks[at] for at in left], jobs, done, lambda task: task.title)

    def remarks(self) -> tuple[Remark, ...]:
        """What is said of all of them, each once, in the order of the plan."""
        return tuple(dict.fromkeys(remark for at in sorted(self._found) for remark in self._found[at]))

    def _finish(self, at: int, remarks: tuple[Remark, ...]) -> None:
        self._found[at] = remarks
        self._progress(len(self._found), len(self._tasks), self._tasks[at].title)

    def _keep(self, task: _Task, made: _Answer) -> None:
        if self._store is not None:
            keep_remarks(self._store, task.variants, made.files, made.remarks, *task.facts)


class _Task(NamedTuple):
    """A choice, what its kernel is tuned over, and whether it is for CPUs alone."""

    choice: Choice
    tune: Tune | None
    cpus_alone: bool

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Those of the choice."""
        return self.choice.variants

    @property
    def title(self) -> str:
        """What people are told of it."""
        return self.choice.variant.title

    @property
    def facts(self) -> tuple[str, ...]:
        """What an answer follows from beside the choice and its kernel's files."""
        return (repr(self.tune), str(self.cpus_alone))


class _Answer(NamedTuple):
    """What is said of a choice, and the files that its kernel was made from, with digests."""

    remarks: tuple[Remark, ...]
    files: Mapping[Path, str]


def _check_one(task: _Task) -> _Answer:
    """Runs in a compile process: tile IR itself does not cross."""
    from tilec.build.schedules.space import check_conditions

    choice = task.choice
    kernel, files, remarks, kinds = elaborate_variant(choice.variant)
    for variant in choice.variants:
        remarks = (*remarks, *remarks_on_space(variant, task.tune, kinds))
        check_conditions(variant, task.tune)
    if task.cpus_alone:
        idle = idle_on_cpus(kernel, choice.variant)
        remarks = (*remarks, *remarks_on_cpus(idle, choice.variant))
    check_limits(kernel, choice.targets, choice.variant)
    for variant in choice.variants:
        _check_statements(kernel, variant)
    asking = [variant for variant in choice.variants if asked_roads(kernel, variant)]
    more = (remark for variant in asking for remark in _roads(kernel, variant))
    return _Answer((*remarks, *more), files)


def _check_statements(kernel: Kernel, variant: Variant) -> None:
    from tilec.backends.pipeline import refuse

    with naming(variant):
        refuse(kernel, variant.target)


def _roads(kernel: Kernel, variant: Variant) -> Iterator[Remark]:
    from tilec.backends.pipeline import lower
    from tilec.backends.to_tir import to_tir

    with naming(variant):
        launches = to_tir(lower(kernel, variant.target), variant.target).launches
        roads = (road for launch in launches for road in launch.roads)
        yield from remarks_on_roads(kernel, variant, roads)
