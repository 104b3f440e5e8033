"""A manifest's plan with ``config = "auto"`` resolved, which takes the kernels themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from tilec.build.elaborated.frontend import elaborate_variant
from tilec.build.processes.pool import default_jobs, run_tasks
from tilec.build.reuse.compiled import find_entry, keep_entry
from tilec.cache import Store
from tilec.manifest import KernelPlan, Plan, Variant, load_manifest, load_manifests
from tilec.manifest.model import Tune
from tilec.settings import read_settings

_KIND = "schedules"


class _Task(NamedTuple):
    """A variant with ``config = "auto"``, and the space that its kernel gives, if any."""

    variant: Variant
    tune: Tune


def load_plan(
    manifest: str | Path,
    *,
    targets: Sequence[str] = (),
    kernels: Sequence[str] = (),
    jobs: int | None = None,
) -> Plan:
    """As `load_plans`, for the first host of which the selection leaves variants."""
    return _scheduled(load_manifest(manifest, targets=targets, kernels=kernels), jobs)


def load_plans(
    manifest: str | Path,
    *,
    targets: Sequence[str] = (),
    kernels: Sequence[str] = (),
    jobs: int | None = None,
) -> tuple[Plan, ...]:
    """As `load_manifests`, with schedules for variants with ``config = "auto"``, of the cache or chosen in
    ``jobs`` processes. Raises also what `automatic` raises."""
    plans = load_manifests(manifest, targets=targets, kernels=kernels)
    return tuple(_scheduled(plan, jobs) for plan in plans)


def _scheduled(plan: Plan, jobs: int | None) -> Plan:
    tasks = [
        _Task(variant, kernel.entry.tune.for_target(variant.target))
        for kernel in plan.kernels
        for variant in kernel.variants
        if variant.is_auto
    ]
    if not tasks:
        return plan
    chosen = iter(_chosen(tasks, jobs or default_jobs()))
    return replace(plan, kernels=tuple(_resolved(kernel, chosen) for kernel in plan.kernels))


def _resolved(kernel: KernelPlan, chosen: Iterator[Sequence[Variant]]) -> KernelPlan:
    """``chosen``: the schedules of each variant with ``config = "auto"``, in the order of the plan."""
    parts = [next(chosen) if variant.is_auto else (variant,) for variant in kernel.variants]
    return replace(kernel, variants=tuple(replace(one, index=at) for at, one in enumerate(chain(*parts))))


def _chosen(tasks: Sequence[_Task], jobs: int) -> list[list[Variant]]:
    settings = read_settings()
    store = Store(settings.cache_dir) if settings.cache else None
    found = {at: _recalled(store, task) for at, task in enumerate(tasks)}
    left = [at for at, text in found.items() if text is None]

    def done(number: int, made: tuple[str, Mapping[Path, str]]) -> None:
        found[left[number]] = made[0]
        _remember(store, tasks[left[number]], *made)

    run_tasks(_choose, [tasks[at] for at in left], jobs, done, lambda task: task.variant.title)
    return [_variants(task.variant, found[at] or "[]") for at, task in enumerate(tasks)]


def _choose(task: _Task) -> tuple[str, Mapping[Path, str]]:
    """The schedules as JSON, and the files that they follow from, with digests; runs in a compile process."""
    from tilec.build.schedules.automatic import automatic

    files = elaborate_variant(task.variant).files
    return json.dumps(automatic(*task)), files


def _variants(variant: Variant, text: str) -> list[Variant]:
    source = 'config = "auto"'
    return [
        replace(
            variant,
            config=config,
            cost=cost,
            config_source=source,
            is_schedule=True,
            is_auto=False,
            listed_under=variant.dims,
        )
        for config, cost in json.loads(text)
    ]


def _recalled(store: Store | None, task: _Task) -> str | None:
    data = None if store is None else find_entry(store, _KIND, task.variant, repr(task.tune))
    return None if data is None else data.decode()


def _remember(store: Store | None, task: _Task, text: str, files: Mapping[Path, str]) -> None:
    """A cache that cannot be written costs time later."""
    try:
        if store is not None:
            keep_entry(store, _KIND, task.variant, files, text.encode(), repr(task.tune))
    except OSError:
        return
