"""What variants are configured with: what the kernel's entry says, overrides, schedules and measurements."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tilec.costs import features_in
from tilec.errors import ManifestError, Place
from tilec.families import family_of
from tilec.ir.guards import Guard
from tilec.manifest.expansion.overrides import (
    Rule,
    merge_config,
    merge_places,
    merge_schedules,
    merge_tolerance,
)
from tilec.manifest.expansion.schedules import Schedules, narrowed
from tilec.manifest.expansion.variants import Variant
from tilec.manifest.model import Kernel, Schedule, given_tolerance, given_values
from tilec.manifest.tuned import TunedConfigs
from tilec.targets import Target


@dataclass(frozen=True)
class Configs:
    """The configs of the kernel ``name``, which an entry of a manifest in the folder ``base`` has for
    ``args``: what the entry says, the ``rules`` of its overrides that mean this kernel, and ``tuned`` ones.
    ``place`` is the entry's, ``config_place`` that of its config, ``key_places`` has those of its keys."""

    entry: Kernel
    name: str
    args: Mapping[str, Any]
    base: Path
    rules: Sequence[Rule]
    tuned: TunedConfigs
    place: Place
    config_place: Place
    key_places: Mapping[str, Place]

    def variants(self, guards: Mapping[Target, Sequence[Mapping[str, Guard]]]) -> tuple[Variant, ...]:
        """The variants for the guards of each target, numbered: one for each schedule where there are several
        of them."""
        found = (
            variant
            for target, choices in guards.items()
            for dims in choices
            for variant in self._variants(target, dims)
        )
        return tuple(replace(variant, index=index) for index, variant in enumerate(found))

    def _variants(self, target: Target, dims: Mapping[str, Guard]) -> Iterator[Variant]:
        rules = [rule for rule in self.rules if rule.applies(target, dims)]
        variant, schedules = self._configured(target, dims, rules), merge_schedules(rules)
        if schedules is None:
            yield _tuned(variant, self.tuned)
            return
        for each in schedules.each:
            yield _scheduled(variant, each, schedules)

    def _configured(self, target: Target, dims: Mapping[str, Guard], rules: Sequence[Rule]) -> Variant:
        """The variant that the entry and the overrides that mean it make, without schedules."""
        is_auto = self.entry.config == "auto" or any(rule.is_auto for rule in rules)
        own = {} if is_auto else given_values(self.entry.config)
        config = merge_config(own, rules)
        applied = [rule.place for rule in rules if rule.gives_config]
        return Variant(
            self.name,
            self.entry.source,
            self.base,
            target,
            dims,
            self.args,
            config,
            "override" if applied else "manifest" if config else "default",
            0,
            self.place,
            self.entry.outputs,
            (*([self.config_place] if own else []), *applied),
            merge_places(self.key_places, rules),
            is_auto=is_auto,
            tolerance=merge_tolerance(rules),
        )


def _scheduled(variant: Variant, schedule: Schedule, schedules: Schedules) -> Variant:
    """The variant with one of several schedules, whose dims are its own. Raises ManifestError where its cost
    asks for features of a processor that the variant does not run on."""
    asked = features_in(schedule.cost)
    if asked and not family_of(variant.target).on_host:
        raise ManifestError(
            f"a schedule of {variant.kernel} asks whether the processor has {', '.join(asked)}",
            place=variant.place,
            why=f"{variant.target.name}, which it is for, too, is no CPU",
            remedy="give GPUs a list of their own",
        )
    return replace(
        variant,
        dims=narrowed(variant.dims, schedule.dims),
        config={**variant.config, **schedule.config},
        config_source=schedules.source,
        value_places=_without(variant.value_places, schedule.config),
        cost=schedule.cost if len(schedules.each) > 1 else "",
        is_schedule=True,
        listed_under=variant.dims,
        is_auto=False,
        tolerance={**variant.tolerance, **given_tolerance(schedule)},
    )


def _tuned(variant: Variant, tuned: TunedConfigs) -> Variant:
    """The variant with what was measured for it."""
    measured = tuned.entry(variant.kernel, variant.target.name, variant.dims)
    if measured is None:
        return variant
    source = f"tuned on {measured.device}, {measured.date}"
    config = {**variant.config, **measured.config}
    places = _without(variant.value_places, measured.config)
    return replace(variant, config=config, config_source=source, value_places=places, is_auto=False)


def _without(places: Mapping[str, Place], replaced: Collection[str]) -> dict[str, Place]:
    """The places of values that no other file gives instead."""
    return {key: place for key, place in places.items() if key not in replaced}
