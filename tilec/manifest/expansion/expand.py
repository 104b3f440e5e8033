"""From a file to its variants: kernels x targets x guards, with overrides and tuned configs merged in."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError

from tilec.errors import InputError, ManifestError, Place
from tilec.manifest.expansion.checks import (
    check_coverage,
    check_dim_names,
    check_model_dims,
    check_overrides,
    check_points,
    check_symbols,
)
from tilec.manifest.expansion.configs import Configs
from tilec.manifest.expansion.declared import (
    Declared,
    best_on,
    chosen_targets,
    declared_targets,
    read_hosts,
    resolve_targets,
    target_names,
    with_chosen,
)
from tilec.manifest.expansion.guard_choices import guard_choices
from tilec.manifest.expansion.names import backward_of, check_backward, kernel_name, merge_args
from tilec.manifest.expansion.overrides import Rule, known_as
from tilec.manifest.expansion.schedules import ScheduleFiles, check_schedules
from tilec.manifest.expansion.variants import KernelPlan, Plan
from tilec.manifest.model import Kernel, Manifest, Override, given_tolerance, given_values, searches
from tilec.manifest.sources import check_source_file, check_source_name
from tilec.manifest.text.document import Document, read_manifest
from tilec.manifest.text.problems import manifest_error
from tilec.manifest.tuned import TunedConfigs, read_tuned, tuned_path
from tilec.spelling import kernels_meant, suggestion
from tilec.targets import Host, Target

#: The targets that each override of a kernel names; None for all.
_Meant: TypeAlias = Sequence["frozenset[str] | None"]
#: How many kernels a warning names.
_FEW_NAMES = 5


def load_manifest(
    path: str | Path,
    *,
    targets: Sequence[str] = (),
    kernels: Sequence[str] = (),
    use_tuned: bool = True,
) -> Plan:
    """As `load_manifests`, for the first host of which the selection leaves variants."""
    return load_manifests(path, targets=targets, kernels=kernels, use_tuned=use_tuned)[0]


def load_manifests(
    path: str | Path,
    *,
    targets: Sequence[str] = (),
    kernels: Sequence[str] = (),
    use_tuned: bool = True,
) -> tuple[Plan, ...]:
    """Reads, validates and expands a manifest: a plan for each host of which the selection leaves variants.

    ``targets`` keeps the named ones (families and ``gpu`` stand for groups; others than the manifest lists
    count as listed), ``kernels`` those whose name matches one of the glob patterns. The whole manifest is
    validated either way. No kernel source is imported. ``use_tuned``: whether measured configs replace those
    of the manifest. Raises ManifestError, and InputError for a selection that selects nothing.
    """
    path = Path(path)
    document = read_manifest(path)
    manifest = with_chosen(_validate(document), targets)
    hosts = read_hosts(document, manifest)
    tuned = read_tuned(path) if use_tuned else TunedConfigs(tuned_path(path))
    files = ScheduleFiles(document.folder)
    every = {host: declared_targets(document, manifest, hosts, host) for host in hosts}
    meant = {host: _meant(document, manifest, every[host]) for host in hosts}
    expanded = {host: _expand(document, manifest, every[host], meant[host], files, tuned) for host in hosts}
    left_out = _left_out(document, manifest, expanded)
    check_backward(expanded[hosts[0]])
    variants = [each for made in expanded.values() for kernel in made for each in kernel.variants]
    warnings = (*tuned.warnings(variants), *left_out)
    idle = tuple(_idle_overrides(document, manifest, every.values(), meant.values(), expanded.values()))
    chosen = chosen_targets(path, every.values(), targets)
    plans = tuple(
        _select(Plan(path, manifest, host, made, warnings, idle), chosen, kernels)
        for host, made in expanded.items()
    )
    if not any(plan.kernels for plan in plans):
        raise InputError(
            "the selection leaves no variant", place=Place(str(path)), remedy="loosen --target or --kernel"
        )
    return tuple(plan for plan in plans if plan.kernels)


def _expand(
    document: Document,
    manifest: Manifest,
    declared: Declared,
    meant: Sequence[_Meant],
    files: ScheduleFiles,
    tuned: TunedConfigs,
) -> tuple[KernelPlan, ...]:
    """Every kernel, for one host."""
    plans = tuple(
        plan
        for at in range(len(manifest.kernel))
        for plan in _expand_entry(document, manifest, at, declared, meant[at], files, tuned)
    )
    check_symbols(plans)
    return plans


def _left_out(
    document: Document, manifest: Manifest, expanded: Mapping[Host, Sequence[KernelPlan]]
) -> tuple[str, ...]:
    """Of another manifest's kernels those that are for none of the targets, as a line for the user. Raises
    ManifestError for a kernel that is for targets of some hosts alone."""
    names = []
    there = {host: {each.place for each in made} for host, made in expanded.items()}
    for at, entry in enumerate(manifest.kernel):
        place = document.place("kernel", at, "name")
        without = [host for host, places in there.items() if place not in places]
        if len(without) == len(expanded):
            names.append(entry.name)
        elif without:
            raise ManifestError(
                f"kernel {entry.name} has no target that {without[0].triple} runs",
                place=document.place("kernel", at, "targets"),
                why="the libraries of a package have the same kernels on every host",
                remedy="give it a target there, or a manifest without that host",
            )
    which = f"{', '.join(names[:_FEW_NAMES])}{' and others' if len(names) > _FEW_NAMES else ''}"
    told = f"{document.file}: {len(names)} of the kernels are for none of these targets: {which}"
    return (told,) if names else ()


def _idle_overrides(
    document: Document,
    manifest: Manifest,
    hosts: Collection[Declared],
    meant: Collection[Sequence[_Meant]],
    expanded: Iterable[Sequence[KernelPlan]],
) -> Iterator[str]:
    """A line for the user for each override whose targets are none of any host's. Another manifest's kernels
    may have overrides for its own targets."""
    if document.kernels is not None:
        return
    targets: dict[Place, list[Target]] = defaultdict(list)
    for plan in (plan for made in expanded for plan in made):
        targets[plan.place] += (each.target for each in plan.variants)
    for at, entry in enumerate(manifest.kernel):
        built = targets[document.place("kernel", at, "name")]
        known = frozenset().union(*(_known(declared, built) for declared in hosts))
        for number, override in enumerate(entry.override):
            place = _targets_place(document, at, number)
            names = frozenset().union(*(host[at][number] or () for host in meant))
            if names and known.isdisjoint(names):
                which = " and ".join(override.targets or ())
                yield f"{place}: the override is for {which}, which is none of the manifest's targets"


def _meant(document: Document, manifest: Manifest, declared: Declared) -> list[_Meant]:
    """For each kernel the targets that each override names, in the spelling of a host; None for all."""
    return [
        [
            None
            if override.targets is None
            else frozenset(target_names(override.targets, declared, _targets_place(document, at, number)))
            for number, override in enumerate(entry.override)
        ]
        for at, entry in enumerate(manifest.kernel)
    ]


def _targets_place(document: Document, at: int, number: int) -> Place:
    return document.place("kernel", at, "override", number, "targets")


def _known(declared: Declared, built: Iterable[Target]) -> frozenset[str]:
    """The names by which overrides mean a target of a host, or one that is ``built`` for it."""
    return frozenset(name for target in (*declared.all, *built) for name in known_as(target))


def _validate(document: Document) -> Manifest:
    try:
        return Manifest.model_validate(document.data)
    except ValidationError as error:
        raise manifest_error(document, error) from error


def _expand_entry(
    document: Document,
    manifest: Manifest,
    at: int,
    declared: Declared,
    meant: _Meant,
    files: ScheduleFiles,
    tuned: TunedConfigs,
) -> Iterator[KernelPlan]:
    """One `[[kernel]]`: a plan per combination of its ``for`` values."""
    entry = manifest.kernel[at]
    _check_entry(document, entry, at)
    targets = resolve_targets(entry.targets, declared, document.place("kernel", at, "targets"))
    if not targets:  # a kernel of other hosts, or of another manifest's targets: `_left_out`
        return
    rules = _rules(document, entry, at, meant, _known(declared, targets), files)
    guards = guard_choices(document, entry, at, targets, declared)
    check_overrides(document, at, rules, guards)
    for values in _combinations(entry.for_):
        name = kernel_name(document, entry, at, values)
        args = merge_args(document, entry, at, values)
        configs = Configs(
            entry,
            name,
            args,
            document.folder,
            [rule for rule in rules if rule.is_for(values)],
            tuned,
            document.place("kernel", at),
            document.place("kernel", at, "config"),
            _key_places(document, entry, at, values),
        )
        backward = backward_of(document, entry, at, values)
        place = document.place("kernel", at, "name")
        yield KernelPlan(name, entry, args, configs.variants(guards), place, backward)


def _check_entry(document: Document, entry: Kernel, at: int) -> None:
    """What can be said of one `[[kernel]]` without the targets. Raises ManifestError."""
    _check_files(document, entry, at, document.folder)
    check_coverage(document, entry, at)
    check_dim_names(document, entry, at)
    check_points(document, entry, at)
    check_model_dims(document, entry, at)


def _key_places(document: Document, entry: Kernel, at: int, values: Mapping[str, Any]) -> dict[str, Place]:
    """Where each key stands that the entry searches, lists under ``for``, or gives kernels or configs."""
    searched = {key: () for table in searches(entry) for key in table.axes}
    homes = {"tune": searched, "for": values, "args": entry.args, "config": given_values(entry.config)}
    return {key: document.place("kernel", at, home, key) for home in homes for key in homes[home]}


def _check_files(document: Document, entry: Kernel, at: int, base: Path) -> None:
    """Everything in Python that the entry names is there."""
    for key in ("source", "reference", "peer", "inputs"):
        what = "kernel source" if key == "source" else key
        source = getattr(entry, key)
        if source is not None:
            check_source_file(source, base, document.place("kernel", at, key), what)
        if source is not None and key != "source":  # the kernel itself is imported, these are not
            check_source_name(source, base, document.place("kernel", at, key), what)


def _combinations(lists: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """All choices of one value per key, the last key fastest; one empty choice when there is no key."""
    for values in itertools.product(*lists.values()):
        yield dict(zip(lists, values, strict=True))


def _rules(
    document: Document,
    entry: Kernel,
    at: int,
    meant: _Meant,
    known: frozenset[str],
    files: ScheduleFiles,
) -> list[Rule]:
    """The overrides for targets that are ``known``."""
    rules = []
    for number, (override, targets) in enumerate(zip(entry.override, meant, strict=True)):
        if targets is not None and targets.isdisjoint(known):  # none that this library is for
            continue
        unknown = next((name for name in override.dims if name not in entry.dims), None)
        if unknown is not None:
            raise ManifestError(
                f'unknown dimension "{unknown}" in an override',
                place=document.place("kernel", at, "override", number, "dims", unknown),
                remedy=suggestion(unknown, entry.dims),
            )
        _check_values(entry, override, document.place("kernel", at, "override", number, "for"))
        place = document.place("kernel", at, "override", number, "schedules")
        schedules = files.schedules(override, place)
        if schedules is not None:
            check_schedules(schedules.each, entry.dims, place)
        place = document.place("kernel", at, "override", number, "config")
        config, is_auto = given_values(override.config), override.config == "auto"
        values, tolerance = override.for_, given_tolerance(override)
        keys = {key: document.place("kernel", at, "override", number, "config", key) for key in config}
        rules.append(Rule(targets, override.dims, config, place, schedules, is_auto, values, tolerance, keys))
    return rules


def _check_values(entry: Kernel, override: Override, place: Place) -> None:
    """Raises ManifestError where an override names other parameters or values than the kernel's `for`."""
    for name, values in override.for_.items():
        if name not in entry.for_:
            what = f'"for" of an override names "{name}", of which the kernel has no values'
            raise ManifestError(what, place=place, remedy=suggestion(name, entry.for_))
        unknown = next((value for value in values if value not in entry.for_[name]), None)
        if unknown is not None:
            raise ManifestError(
                f'"for" of an override names no value that the kernel has for {name}',
                place=place,
                remedy=suggestion(str(unknown), map(str, entry.for_[name])),
            )


def _select(plan: Plan, chosen: Collection[Target], kernels: Sequence[str]) -> Plan:
    """The part of a plan that the command line asked for."""
    meant = kernels_meant(kernels, (kernel.name for kernel in plan.kernels), plan.path)
    kept = []
    for kernel in plan.kernels:
        targets = _targets_for(chosen, {variant.target for variant in kernel.variants})
        variants = tuple(variant for variant in kernel.variants if variant.target in targets)
        if variants and (not kernels or kernel.name in meant):
            kept.append(replace(kernel, variants=variants))
    return replace(plan, kernels=tuple(kept))


def _targets_for(chosen: Collection[Target], targets: Collection[Target]) -> frozenset[Target]:
    """Of a kernel's targets those that are chosen, and what stands for CPUs that it has no code of their own
    for."""
    missing = [machine for machine in chosen if machine not in targets]
    found = {best_on(machine, targets) for machine in missing}
    return frozenset(each for each in targets if each in found or each in chosen)
