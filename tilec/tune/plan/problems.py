"""What is to be tuned: one problem for each kernel, target and guards, with points and configs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tilec.build.schedules.space import Config, Space, space_for
from tilec.cache import digest
from tilec.errors import InputError, Place
from tilec.manifest import KernelPlan, Plan, Variant, load_manifest
from tilec.manifest.shapes import Call, read_shapes
from tilec.manifest.sources import source_sha256
from tilec.manifest.tuned import TunedConfigs, TunedEntry, read_tuned
from tilec.portable.dims import dims_text
from tilec.spelling import counted
from tilec.tune.plan.points import Point, points_of
from tilec.tune.plan.sweeps import Sweep, sweep_points


@dataclass(frozen=True)
class Problem:
    """``configs``: number 0 is the manifest's own, then, where it differs, the one in the tuned file, then
    those of the space. ``stored``: the entry of the tuned file, ``incumbent`` the number of its config.
    ``weighted``: points are the calls of a model, and their sum counts; else their geometric mean.
    ``is_sweep``: every config is measured at every point, and schedules are made of it."""

    kernel: KernelPlan
    variant: Variant
    space: Space
    points: tuple[Point, ...]
    configs: tuple[Config, ...]
    stored: TunedEntry | None = None
    incumbent: int = 0
    weighted: bool = False
    is_sweep: bool = False

    @property
    def title(self) -> str:
        """One line for people."""
        return self.variant.title

    @property
    def id(self) -> str:
        """Names the problem in journals and results: kernel, target and guards."""
        guards = dims_text(self.variant.dims)
        return f"{self.variant.kernel} {self.variant.target.name} {guards}".rstrip()

    @property
    def source_sha256(self) -> str:
        """The hash of the kernel's source file."""
        return source_sha256(self.variant.source, self.variant.base)

    def candidate(self, number: int) -> Variant:
        """The variant with config ``number``."""
        return replace(self.variant, config=self.configs[number], config_source="candidate")

    def key(self, config: Config, *more: str) -> str:
        """Names a measurement of a config: what was compiled and where it was measured."""
        points = "; ".join(point.text for point in self.points)
        return digest(self.id, points, self.source_sha256, repr(sorted(config.items())), *more)


@dataclass(frozen=True)
class Agenda:
    """All problems of a manifest. ``untouched``: variants without a space, or without a point."""

    plan: Plan
    problems: tuple[Problem, ...]
    untouched: tuple[Variant, ...]
    tuned: TunedConfigs


def agenda(
    manifest: str | Path,
    *,
    targets: Sequence[str] = (),
    kernels: Sequence[str] = (),
    shapes: str | Path | None = None,
    sweep: Sweep | None = None,
    chosen: Callable[[KernelPlan], Sequence[Variant]] = lambda kernel: kernel.variants,
) -> Agenda:
    """Reads a manifest and its tuned file and lists what there is to tune. ``chosen``: the variants of a
    kernel that are meant. ``sweep``: schedules are to be made, also for variants that have some.

    Raises ManifestError, InputError where nothing can be tuned, UnsupportedError where no cost can be told of
    a kernel that schedules are to be made for."""
    path = Path(manifest)
    plan = load_manifest(path, targets=targets, kernels=kernels, use_tuned=False)
    calls = None if shapes is None else read_shapes(Path(shapes), load_manifest(path, use_tuned=False))
    tuned = read_tuned(path)
    problems, untouched = [], []
    for kernel in plan.kernels:
        for variant in chosen(kernel):
            if sweep is None:
                made = _problem(kernel, variant, calls, tuned)
            else:
                made = _sweep(kernel, variant, calls, sweep)
            if made is None:
                untouched.append(variant)
            else:
                problems.append(made)
    return Agenda(plan, tuple(problems), tuple(untouched), tuned)


def require_problems(found: Agenda) -> None:
    """Raises InputError where there is nothing to tune."""
    if found.problems:
        return
    if found.untouched and all(variant.is_schedule for variant in found.untouched):
        raise InputError(
            "there is nothing to tune",
            place=Place(str(found.plan.path)),
            why="the library chooses among schedules for every variant, and uses no tuned config there",
            remedy="make schedules with --schedules FILE, or remove those of the override to tune one config",
        )
    if not found.untouched:
        targets = dict.fromkeys(each.target.name for kernel in found.plan.kernels for each in kernel.variants)
        raise InputError(
            "there is nothing to tune",
            place=Place(str(found.plan.path)),
            why=f"no device here runs code for {', '.join(targets)}",
            remedy="choose other targets with --target or other devices with --devices, or take the work to "
            "a machine that has such a device with --export",
        )
    raise InputError(
        "there is nothing to tune",
        place=Place(str(found.plan.path)),
        why=f"none of {counted(len(found.untouched), 'variant')} has a space and a point to measure at",
        remedy="add [kernel.tune] with the values to try, or loosen --kernel, --target and --shapes",
    )


def _problem(kernel: KernelPlan, variant: Variant, calls: Any, tuned: TunedConfigs) -> Problem | None:
    if variant.is_schedule:
        return None
    tune = kernel.entry.tune.for_target(variant.target)
    space = space_for(variant, tune)
    points = points_of(kernel, variant, tune, calls)
    if not space.size or not points:
        return None
    stored = tuned.entry(variant.kernel, variant.target.name, variant.dims)
    configs: list[Config] = [variant.config]
    if stored is not None:
        configs.append({**variant.config, **stored.config})
    configs += space.configs()
    distinct = list({_text(config): config for config in configs}.values())
    incumbent = 0 if stored is None else [_text(one) for one in distinct].index(_text(configs[1]))
    return Problem(
        kernel, variant, space, tuple(points), tuple(distinct), stored, incumbent, weighted=calls is not None
    )


def _sweep(
    kernel: KernelPlan, variant: Variant, calls: Sequence[Call] | None, sweep: Sweep
) -> Problem | None:
    """The configs of a variant, and of the schedules beside it, at many shapes; None for all but the first of
    several schedules."""
    beside = [one for one in kernel.variants if (one.target, one.dims) == (variant.target, variant.dims)]
    tune = kernel.entry.tune.for_target(variant.target)
    space = space_for(variant, tune)
    if variant is not beside[0] or (len(beside) == 1 and not space.size):
        return None
    points = sweep_points(kernel, variant, calls, sweep)
    configs = [*(one.config for one in beside), *space.configs()]
    distinct = tuple({_text(config): config for config in configs}.values())
    return Problem(kernel, variant, space, tuple(points), distinct, is_sweep=True) if points else None


def _text(config: Mapping[str, Any]) -> str:
    return repr(sorted(config.items()))
