"""The targets and the host of a manifest, and what names of targets stand for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tilec.errors import InputError, ManifestError, Place
from tilec.families import Family, families, family_of
from tilec.manifest.model import Manifest
from tilec.manifest.text.document import Document
from tilec.spelling import suggestion
from tilec.systems import LINUX, SYSTEMS
from tilec.targets import ARCHS, Host, Target, native_host, parse_host, parse_target


class Declared(NamedTuple):
    """``named``: group name, and every target's name, to the targets it stands for on one host; ``listed``:
    the names that stand for some on any host of the manifest. ``lent``: the kernels are another manifest's,
    and may be for other targets."""

    named: Mapping[str, tuple[Target, ...]]
    listed: frozenset[str]
    lent: bool

    @property
    def all(self) -> tuple[Target, ...]:
        """What [targets] lists for the host, each once."""
        return tuple(dict.fromkeys(target for members in self.named.values() for target in members))


def read_hosts(document: Document, manifest: Manifest) -> tuple[Host, ...]:
    """What the package is for: the manifest's words, else this machine."""
    named, place = manifest.targets.host, document.place("targets", "host")
    if named is None:
        return (native_host(),)
    try:
        hosts = tuple(
            parse_host(text, place=place) for text in ((named,) if isinstance(named, str) else named)
        )
    except InputError as error:
        raise _in_manifest(error, place) from error
    folders = [host.folder for host in hosts]
    twice = next((folder for at, folder in enumerate(folders) if folder in folders[:at]), None)
    if twice or not hosts:
        what = f"two hosts are {twice}" if twice else "the list of hosts is empty"
        raise ManifestError(what, place=place, remedy="name each processor with each system once")
    return hosts


def declared_targets(document: Document, manifest: Manifest, hosts: Sequence[Host], host: Host) -> Declared:
    """Group name and every target's name to the targets it stands for on ``host``, one of ``hosts``. Names of
    others stand for none there."""
    groups: dict[str, tuple[Target, ...]] = {}
    listed: set[str] = set()
    spelt: dict[str, tuple[Target, ...]] = {}
    for family in families():
        names, place = manifest.targets.of(family.name), document.place("targets", family.name)
        for name in names:
            target = _parse_target(name, family, hosts, place)
            fits = family.fits(target, host)
            spelt[name] = spelt[target.name] = (target.on(host),) if fits else ()
        for group in family.groups:
            groups[group] = (*groups.get(group, ()), *(target for name in names for target in spelt[name]))
        listed |= {*names, *(family.groups if names else ())}
    if not any(groups.values()):
        raise ManifestError(
            f"the manifest names no target for {host.triple}" if spelt else "the manifest names no target",
            place=document.place("targets"),
            remedy=f"add {families()[0].example}",
        )
    every = [parse_target(name).name for family in families() for name in manifest.targets.of(family.name)]
    twice = next((name for at, name in enumerate(every) if name in every[:at]), None)
    if twice:
        raise ManifestError(
            f'target "{twice}" is listed twice',
            place=document.place("targets"),
            remedy="remove one of the two",
        )
    return Declared({**groups, **spelt}, frozenset({*spelt, *listed}), document.kernels is not None)


def _in_manifest(error: InputError, place: Place) -> ManifestError:
    return ManifestError(error.what, place=place, why=error.why, remedy=error.remedy)


def _parse_target(name: str, family: Family, hosts: Sequence[Host], place: Place) -> Target:
    try:
        target = parse_target(name, place=place, wanted=family.name)
    except InputError as error:
        raise _in_manifest(error, place) from error
    if target.family != family.name:
        raise ManifestError(
            f'"{name}" is no {family.name} target', place=place, remedy=f"move it to targets.{target.family}"
        )
    if not any(family.fits(target, host) for host in hosts):
        raise ManifestError(
            f'target "{name}" cannot be part of a library for {" or ".join(host.triple for host in hosts)}',
            place=place,
            why=_why_unfit(target, hosts[0]),
            remedy=_remedy(target, hosts[0]),
        )
    return target


def _why_unfit(target: Target, host: Host) -> str:
    if target.arch in ARCHS:
        return f"the library is one {host.arch} file"
    return f"{host.system.title} has no driver for {target.family} devices"


def _remedy(target: Target, host: Host) -> str:
    if target.arch in ARCHS:
        return f'set host = "{target.arch}-{host.system.example}", or give {target.arch} its own manifest'
    fit = next((each for each in SYSTEMS if target.family not in each.lacks), LINUX)
    return f'set host = "{host.arch}-{fit.example}", or remove it from targets.{target.family}'


def target_names(names: Sequence[str], declared: Declared, place: Place) -> tuple[str, ...]:
    """Names of targets and groups in the spelling of `Declared.named`, where [targets] lists them or not."""
    return tuple(name if name in declared.named else _unlisted(name, declared, place) for name in names)


def _unlisted(name: str, declared: Declared, place: Place) -> str:
    """The name of a target that is not built."""
    try:
        return parse_target(name).name
    except InputError as error:
        groups = dict.fromkeys(group for family in families() for group in family.groups)
        raise ManifestError(
            f'unknown target "{name}"',
            place=place,
            why=f"targets of kernels are {', '.join(groups)} or names of single ones",
            remedy=suggestion(name, declared.named),
        ) from error


def resolve_targets(names: Sequence[str] | None, declared: Declared, place: Place) -> tuple[Target, ...]:
    """Targets of a kernel on one host, in the manifest's order, each once; none where they are all of other
    hosts, or where kernels of another manifest are for none of these.

    A CPU of [targets] that a kernel does not name has the code of the best that it does name and the CPU
    runs, as if [targets] listed that, too."""
    every = [family.name for family in families()]
    chosen = every if names is None else target_names(names, declared, place)
    found = dict.fromkeys(target for name in chosen for target in declared.named.get(name, ()))
    groups = {group for family in families() for group in family.groups}
    asked = [parse_target(name) for name in chosen if name not in groups]
    for machine in declared.all:
        best = None if machine in found else best_on(machine, (*found, *asked))
        if best is not None:
            found[replace(best, triple=machine.triple)] = None
    if not found and declared.listed.isdisjoint(chosen) and not declared.lent:
        raise ManifestError(
            f"{' and '.join(chosen)}: [targets] lists none of these",
            place=place,
            remedy="add them to [targets]",
        )
    return tuple(found)


def best_on(machine: Target, targets: Iterable[Target]) -> Target | None:
    """Of CPU targets the best whose code every CPU of ``machine`` runs; None where there is none."""
    if not family_of(machine).on_host:
        return None
    run = (each for each in targets if each.family == machine.family and each.arch == machine.arch)
    fit = [each for each in run if not each.required_mask & ~machine.required_mask]
    return max(fit, key=lambda each: each.rank, default=None)


def with_chosen(manifest: Manifest, names: Sequence[str]) -> Manifest:
    """The manifest with targets of `--target` options that [targets] does not list, as if it did."""
    for name in names:
        target = _target(name)
        if target is None or target in map(_target, manifest.targets.of(target.family)):
            continue
        manifest = manifest.model_copy(update={"targets": manifest.targets.and_one(target.family, name)})
    return manifest


def _target(name: str) -> Target | None:
    """The target of a name; None where it is a group's, or nobody's."""
    try:
        return parse_target(name)
    except InputError:
        return None


def chosen_targets(path: Path, hosts: Collection[Declared], names: Sequence[str]) -> frozenset[Target]:
    """The targets of any host that `--target` options name; all of them without one."""
    if not names:
        return frozenset(found for each in hosts for found in each.all)
    known = dict.fromkeys(name for each in hosts for name in each.named)
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise InputError(
            f'target "{unknown}" is not in the manifest',
            place=Place(str(path), key="targets"),
            remedy=suggestion(unknown, known),
        )
    return frozenset(found for each in hosts for name in names for found in each.named[name])
