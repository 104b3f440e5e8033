"""Under which guards a kernel has variants: all choices from the lists of its dims, but for what it leaves
out."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tilec.errors import ManifestError
from tilec.ir.guards import Guard
from tilec.manifest.expansion.declared import Declared, target_names
from tilec.manifest.expansion.overrides import means
from tilec.manifest.guards import implies
from tilec.manifest.model import Kernel, LeftOut
from tilec.manifest.text.document import Document
from tilec.spelling import suggestion
from tilec.targets import Target

#: A guard for each dim.
Choice: TypeAlias = "Mapping[str, Guard]"


def guard_choices(
    document: Document, entry: Kernel, at: int, targets: Sequence[Target], declared: Declared
) -> dict[Target, list[Choice]]:
    """One for each variant on a target, the last dim fastest. Raises ManifestError for choices left out that
    ``dims`` do not have, or whose calls nobody would serve."""
    lists = itertools.product(*entry.dims.values())
    every: list[Choice] = [dict(zip(entry.dims, guards, strict=True)) for guards in lists]
    for number in range(len(entry.without)):
        _check_listed(document, entry, at, number)
    named = [_names(document, entry, at, number, declared) for number in range(len(entry.without))]
    return {
        target: _kept(
            document,
            entry,
            at,
            every,
            [each for each, names in zip(entry.without, named, strict=True) if means(names, target)],
        )
        for target in targets
    }


def _names(
    document: Document, entry: Kernel, at: int, number: int, declared: Declared
) -> frozenset[str] | None:
    """The targets and groups on which something is left out, as an override names its own; None is all."""
    names = entry.without[number].targets
    if names is None:
        return None
    place = document.place("kernel", at, "without", number, "targets")
    return frozenset(target_names(names, declared, place))


def _kept(
    document: Document, entry: Kernel, at: int, every: Sequence[Choice], without: Sequence[LeftOut]
) -> list[Choice]:
    """The choices on one target."""
    kept = [choice for choice in every if not _is_left_out(choice, without)]
    for choice in every if len(kept) < len(every) else ():
        if _is_left_out(choice, without):
            _check_served(document, entry, at, choice, kept)
    return kept


def _is_left_out(choice: Choice, without: Sequence[LeftOut]) -> bool:
    return any(all(choice[name] in guards for name, guards in each.dims.items()) for each in without)


def _check_listed(document: Document, entry: Kernel, at: int, number: int) -> None:
    for name, guards in entry.without[number].dims.items():
        place = document.place("kernel", at, "without", number, name)
        if name not in entry.dims:
            what = f'unknown dimension "{name}" in what is left out'
            raise ManifestError(what, place=place, remedy=suggestion(name, entry.dims))
        strange = next((guard for guard in guards if guard not in entry.dims[name]), None)
        if strange is not None:
            raise ManifestError(
                f"{name} does not list {strange}",
                place=place,
                why=f"{name} lists {', '.join(map(str, entry.dims[name]))}",
                remedy="leave out guards that the dimension lists",
            )


def _check_served(document: Document, entry: Kernel, at: int, choice: Choice, kept: Sequence[Choice]) -> None:
    if any(all(implies(choice[name], guard) for name, guard in wider.items()) for wider in kept):
        return
    told = ", ".join(f"{name} = {guard}" for name, guard in choice.items() if not guard.is_dynamic)
    raise ManifestError(
        f"calls with {told or 'any dims'} are left out of {entry.name}, and no wider variant serves them",
        place=document.place("kernel", at, "without"),
        remedy="leave out what another choice of guards admits",
    )
