"""From a file to its variants: kernels x targets x guards, with overrides and tuned configs merged in."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tilec.errors import InputError, ManifestError, Place
from tilec.ir.guards import Guard
from tilec.manifest.document import Document, read_document
from tilec.manifest.guards import first_uncovered
from tilec.manifest.model import Kernel, Manifest, is_c_identifier
from tilec.manifest.overrides import Rule, merge_config
from tilec.manifest.problems import manifest_error, suggestion
from tilec.manifest.sources import check_source_file
from tilec.manifest.tuned import TunedConfigs, read_tuned
from tilec.manifest.variants import KernelPlan, Plan, Variant
from tilec.targets import Host, Target, native_host, parse_host, parse_target

#: Symbols that every library has beside those of its kernels.
_LIBRARY_SYMBOLS = ("library", "last_error")


def load_manifest(path: str | Path, *, targets: Sequence[str] = (), kernels: Sequence[str] = ()) -> Plan:
    """Reads, validates and expands a manifest.

    ``targets`` keeps the named ones (``cpu`` and ``cuda`` stand for groups), ``kernels`` those whose name
    matches one of the glob patterns. The whole manifest is validated either way. No kernel source is
    imported. Raises ManifestError, and InputError for a selection that selects nothing.
    """
    path = Path(path)
    document = read_document(path)
    manifest = _validate(document)
    host = _host(document, manifest)
    declared = _declared_targets(document, manifest, host)
    tuned = read_tuned(path)
    plans = tuple(
        plan for at in range(len(manifest.kernel)) for plan in _expand_entry(document, manifest, at, declared, tuned)
    )
    _check_symbols(plans)
    warnings = tuned.warnings(path.parent, [variant for plan in plans for variant in plan.variants])
    plan = Plan(path, manifest, host, plans, warnings)
    return _select(plan, declared, targets, kernels)


def _validate(document: Document) -> Manifest:
    if "edition" in document.data and document.data["edition"] != 1:
        document = replace(document, data={"edition": document.data["edition"]})
    try:
        return Manifest.model_validate(document.data)
    except ValidationError as error:
        raise manifest_error(document, error) from error


def _host(document: Document, manifest: Manifest) -> Host:
    if manifest.targets.host is None:
        return native_host()
    return parse_host(manifest.targets.host, place=document.place("targets", "host"))


def _declared_targets(document: Document, manifest: Manifest, host: Host) -> dict[str, tuple[Target, ...]]:
    """Group name and every target's name to the targets it stands for."""
    groups: dict[str, tuple[Target, ...]] = {}
    for group, names in (("cpu", manifest.targets.cpu), ("cuda", manifest.targets.cuda)):
        place = document.place("targets", group)
        groups[group] = tuple(_parse_target(name, group, host, place) for name in names)
    if not any(groups.values()):
        raise ManifestError(
            "the manifest names no target", place=document.place("targets"), remedy='add cpu = ["x86-64-v3"]'
        )
    every = [target for members in groups.values() for target in members]
    twice = next((target.name for at, target in enumerate(every) if target in every[:at]), None)
    if twice:
        raise ManifestError(
            f'target "{twice}" is listed twice', place=document.place("targets"), remedy="remove one of the two"
        )
    return {**groups, **{target.name: (target,) for target in every}}


def _parse_target(name: str, group: str, host: Host, place: Place) -> Target:
    try:
        target = parse_target(name, place=place)
    except InputError as error:
        raise ManifestError(error.what, place=place, why=error.why, remedy=error.remedy) from error
    if target.is_cpu != (group == "cpu"):
        other = "cpu" if target.is_cpu else "cuda"
        raise ManifestError(f'"{name}" is no {group} target', place=place, remedy=f"move it to targets.{other}")
    if target.is_cpu and target.arch != host.arch:
        raise ManifestError(
            f'target "{name}" cannot be part of a library for {host.triple}',
            place=place,
            why=f"the library is one {host.arch} file",
            remedy=f'set host = "{target.arch}-linux-gnu.2.17", or put {target.arch} into a manifest of its own',
        )
    return target


def _expand_entry(
    document: Document,
    manifest: Manifest,
    at: int,
    declared: Mapping[str, tuple[Target, ...]],
    tuned: TunedConfigs,
) -> Iterator[KernelPlan]:
    """One `[[kernel]]`: a plan per combination of its ``for`` values."""
    entry = manifest.kernel[at]
    base = document_folder(document)
    check_source_file(entry.source, base, document.place("kernel", at, "source"))
    _check_coverage(document, entry, at)
    _check_dim_names(document, entry, at)
    targets = _resolve_targets(entry.targets, declared, document.place("kernel", at, "targets"))
    rules = _rules(document, entry, at, declared)
    for values in _combinations(entry.for_):
        name = _kernel_name(document, entry, at, values)
        args = _merge_args(document, entry, at, values)
        guards = list(_combinations(entry.dims))
        variants = [
            _variant(entry, name, args, target, dims, rules, tuned, base, document.place("kernel", at))
            for target, dims in itertools.product(targets, guards)
        ]
        numbered = tuple(replace(variant, index=index) for index, variant in enumerate(variants))
        yield KernelPlan(name, entry, args, numbered, document.place("kernel", at, "name"))


def document_folder(document: Document) -> Path:
    """The folder that sources are relative to."""
    return Path(document.file).resolve().parent


def _variant(
    entry: Kernel,
    name: str,
    args: Mapping[str, Any],
    target: Target,
    dims: Mapping[str, Guard],
    rules: Sequence[Rule],
    tuned: TunedConfigs,
    base: Path,
    place: Place,
) -> Variant:
    config = merge_config(entry.config, rules, target.name, dims)
    source = "manifest" if config else "default"
    if any(rule.applies(target.name, dims) for rule in rules):
        source = "override"
    measured = tuned.config(name, target.name, dims)
    if measured is not None:
        config, source = {**config, **measured}, "tuned"
    return Variant(name, entry.source, base, target, dims, args, config, source, 0, place)


def _combinations(lists: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """All choices of one value per key, the last key fastest; one empty choice when there is no key."""
    for values in itertools.product(*lists.values()):
        yield dict(zip(lists, values, strict=True))


def _resolve_targets(
    names: Sequence[str] | None, declared: Mapping[str, tuple[Target, ...]], place: Place
) -> tuple[Target, ...]:
    """Targets of a kernel or an override, in the manifest's order, each once."""
    chosen = ("cpu", "cuda") if names is None else names
    unknown = next((name for name in chosen if name not in declared), None)
    if unknown is not None:
        raise ManifestError(
            f'unknown target "{unknown}"',
            place=place,
            why="a kernel's targets are cpu, cuda or names that [targets] lists",
            remedy=suggestion(unknown, declared),
        )
    found = tuple(dict.fromkeys(target for name in chosen for target in declared[name]))
    if not found:
        raise ManifestError(
            f"{' and '.join(chosen)}: [targets] lists none of these", place=place, remedy="add them to [targets]"
        )
    return found


def _rules(document: Document, entry: Kernel, at: int, declared: Mapping[str, tuple[Target, ...]]) -> list[Rule]:
    """The overrides with their targets resolved."""
    rules = []
    for number, override in enumerate(entry.override):
        place = document.place("kernel", at, "override", number, "targets")
        targets = None
        if override.targets is not None:
            targets = frozenset(target.name for target in _resolve_targets(override.targets, declared, place))
        unknown = next((name for name in override.dims if name not in entry.dims), None)
        if unknown is not None:
            raise ManifestError(
                f'unknown dimension "{unknown}" in an override',
                place=document.place("kernel", at, "override", number, "dims", unknown),
                remedy=suggestion(unknown, entry.dims),
            )
        rules.append(Rule(targets, override.dims, override.config))
    return rules


def _kernel_name(document: Document, entry: Kernel, at: int, values: Mapping[str, Any]) -> str:
    """The name with the values of ``for`` filled in."""
    place = document.place("kernel", at, "name")
    texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in values.items()}
    try:
        name = entry.name.format_map(texts)
    except KeyError as error:
        raise ManifestError(
            f'name "{entry.name}" uses {error}, which "for" does not give',
            place=place,
            remedy=suggestion(str(error.args[0]), texts),
        ) from error
    except (ValueError, IndexError, AttributeError) as error:
        raise ManifestError(
            f'name "{entry.name}" is no usable pattern', place=place, why=str(error), remedy="write {key} for values"
        ) from error
    if not is_c_identifier(name):
        raise ManifestError(
            f'kernel name "{name}" is no C identifier',
            place=place,
            why="it becomes part of a C symbol",
            remedy="use letters, digits and _, not starting with a digit, and no C or C++ keyword",
        )
    return name


def _merge_args(document: Document, entry: Kernel, at: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """``args`` and the values of ``for``; a parameter may come from one place only."""
    homes = {"for": values, "args": entry.args, "dims": entry.dims}
    for (first, left), (second, right) in itertools.combinations(homes.items(), 2):
        _refuse_shared(document, at, first, left, second, right)
    configs = [entry.config, *(override.config for override in entry.override)]
    for name, keys in homes.items():
        for config in configs:
            _refuse_shared(document, at, name, keys, "config", config)
    return {**entry.args, **values}


def _refuse_shared(
    document: Document, at: int, first: str, left: Mapping[str, Any], second: str, right: Mapping[str, Any]
) -> None:
    shared = next((key for key in right if key in left), None)
    if shared is None:
        return
    raise ManifestError(
        f'parameter "{shared}" is given in {first} and in {second}',
        place=document.place("kernel", at, second, shared),
        remedy="give it in one of the two",
    )


def _check_dim_names(document: Document, entry: Kernel, at: int) -> None:
    for name in entry.dims:
        if not is_c_identifier(name):
            raise ManifestError(
                f'dimension "{name}" is no C identifier',
                place=document.place("kernel", at, "dims", name),
                remedy="name it as the kernel does",
            )


def _check_coverage(document: Document, entry: Kernel, at: int) -> None:
    """Variants are a product over dims, so each dim can be judged alone: one that lists only integers is
    closed, any other must admit every value."""
    if entry.fallback == "none":
        return
    for name, guards in entry.dims.items():
        missing = first_uncovered(guards)
        if missing is None or all(guard.eq is not None for guard in guards):
            continue
        raise ManifestError(
            f"{name} = {missing} would be served by no variant of {entry.name}",
            place=document.place("kernel", at, "dims", name),
            why=f"{name} lists {', '.join(str(guard) for guard in guards)}",
            remedy='add "dynamic" to the list, or fallback = "none" to the kernel if such shapes are to be refused',
        )


def _check_symbols(plans: Sequence[KernelPlan]) -> None:
    """No two C functions of the library may have one name."""
    owners: dict[str, str] = {symbol: "the library itself" for symbol in _LIBRARY_SYMBOLS}
    for plan in plans:
        for symbol in (plan.name, f"{plan.name}_workspace"):
            if symbol in owners:
                raise _duplicate(plan, symbol, owners[symbol])
            owners[symbol] = f"kernel {plan.name} ({plan.place})"


def _duplicate(plan: KernelPlan, symbol: str, owner: str) -> ManifestError:
    remedy = "rename one of the two"
    if plan.entry.for_:
        keys = ", ".join(f"{{{key}}}" for key in plan.entry.for_)
        remedy = f"let the name hold every key of for ({keys}), or rename one of the two"
    return ManifestError(
        f'kernel "{plan.name}" would define the symbol <package>_{symbol} a second time',
        place=plan.place,
        why=f"it belongs to {owner}",
        remedy=remedy,
    )


def _select(
    plan: Plan, declared: Mapping[str, tuple[Target, ...]], targets: Sequence[str], kernels: Sequence[str]
) -> Plan:
    """The part of a plan that the command line asked for."""
    chosen = _chosen_targets(plan, declared, targets)
    for pattern in kernels:
        if not any(fnmatchcase(kernel.name, pattern) for kernel in plan.kernels):
            names = [kernel.name for kernel in plan.kernels]
            raise InputError(
                f'no kernel matches "{pattern}"', place=Place(str(plan.path)), remedy=suggestion(pattern, names)
            )
    kept = []
    for kernel in plan.kernels:
        variants = tuple(variant for variant in kernel.variants if variant.target in chosen)
        if variants and (not kernels or any(fnmatchcase(kernel.name, pattern) for pattern in kernels)):
            kept.append(replace(kernel, variants=variants))
    if not kept:
        raise InputError(
            "the selection leaves no variant", place=Place(str(plan.path)), remedy="loosen --target or --kernel"
        )
    return replace(plan, kernels=tuple(kept))


def _chosen_targets(
    plan: Plan, declared: Mapping[str, tuple[Target, ...]], names: Sequence[str]
) -> frozenset[Target]:
    every = frozenset(target for members in declared.values() for target in members)
    if not names:
        return every
    unknown = next((name for name in names if name not in declared), None)
    if unknown is not None:
        raise InputError(
            f'target "{unknown}" is not in the manifest',
            place=Place(str(plan.path), key="targets"),
            remedy=suggestion(unknown, declared),
        )
    return frozenset(target for name in names for target in declared[name])
