"""The targets and the host of a manifest, and what names of targets stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tilec.errors import InputError, ManifestError, Place
from tilec.families import Family, families
from tilec.manifest.document import Document
from tilec.manifest.model import Manifest
from tilec.manifest.problems import suggestion
from tilec.manifest.variants import Plan
from tilec.targets import Host, Target, native_host, parse_host, parse_target

#: Group name, and every target's name, to the targets it stands for.
Declared: TypeAlias = "Mapping[str, tuple[Target, ...]]"


def read_host(document: Document, manifest: Manifest) -> Host:
    """What the library is for: the manifest's word, else this machine."""
    if manifest.targets.host is None:
        return native_host()
    place = document.place("targets", "host")
    try:
        return parse_host(manifest.targets.host, place=place)
    except InputError as error:
        raise _in_manifest(error, place) from error


def declared_targets(document: Document, manifest: Manifest, host: Host) -> Declared:
    """Group name and every target's name to the targets it stands for."""
    groups: dict[str, tuple[Target, ...]] = {}
    for family in families():
        names, place = manifest.targets.of(family.name), document.place("targets", family.name)
        groups[family.name] = tuple(_parse_target(name, family, host, place) for name in names)
    if not any(groups.values()):
        raise ManifestError(
            "the manifest names no target",
            place=document.place("targets"),
            remedy=f"add {families()[0].example}",
        )
    every = [target for members in groups.values() for target in members]
    twice = next((target.name for at, target in enumerate(every) if target in every[:at]), None)
    if twice:
        raise ManifestError(
            f'target "{twice}" is listed twice',
            place=document.place("targets"),
            remedy="remove one of the two",
        )
    spellings = [name for group in groups for name in manifest.targets.of(group)]
    spelt = dict(zip(spellings, every, strict=True))
    named = {**spelt, **{target.name: target for target in every}}
    return {**groups, **{name: (target,) for name, target in named.items()}}


def _in_manifest(error: InputError, place: Place) -> ManifestError:
    return ManifestError(error.what, place=place, why=error.why, remedy=error.remedy)


def _parse_target(name: str, family: Family, host: Host, place: Place) -> Target:
    try:
        target = parse_target(name, place=place)
    except InputError as error:
        raise _in_manifest(error, place) from error
    if target.family != family.name:
        raise ManifestError(
            f'"{name}" is no {family.name} target', place=place, remedy=f"move it to targets.{target.family}"
        )
    if not family.fits(target, host):
        raise ManifestError(
            f'target "{name}" cannot be part of a library for {host.triple}',
            place=place,
            why=f"the library is one {host.arch} file",
            remedy=f'set host = "{target.arch}-linux-gnu.2.17", or give {target.arch} its own manifest',
        )
    return target


def resolve_targets(names: Sequence[str] | None, declared: Declared, place: Place) -> tuple[Target, ...]:
    """Targets of a kernel or an override, in the manifest's order, each once."""
    groups = [family.name for family in families()]
    chosen = groups if names is None else names
    unknown = next((name for name in chosen if name not in declared), None)
    if unknown is not None:
        raise ManifestError(
            f'unknown target "{unknown}"',
            place=place,
            why=f"a kernel's targets are {', '.join(groups)} or names that [targets] lists",
            remedy=suggestion(unknown, declared),
        )
    found = tuple(dict.fromkeys(target for name in chosen for target in declared[name]))
    if not found:
        raise ManifestError(
            f"{' and '.join(chosen)}: [targets] lists none of these",
            place=place,
            remedy="add them to [targets]",
        )
    return found


def chosen_targets(plan: Plan, declared: Declared, names: Sequence[str]) -> frozenset[Target]:
    """The targets that `--target` options name; all of them without one."""
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
