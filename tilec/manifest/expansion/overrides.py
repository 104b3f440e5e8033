"""Which config a variant gets: the kernel's, what overrides say, what tuning measured."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from tilec.errors import Place
from tilec.families import families, family_of
from tilec.ir.guards import Guard
from tilec.manifest.expansion.schedules import Schedules
from tilec.manifest.guards import implies
from tilec.targets import Target, parse_target


@dataclass(frozen=True)
class Rule:
    """Config values, from ``place``, for the variants on ``targets`` (`known_as` has their names; None: all)
    whose guards imply ``dims``; several sets of them where it has ``schedules``, and ``is_auto`` where they
    are to be found; ``key_places`` has the place of each value. ``values``: of parameters that one manifest
    entry has several kernels for, those that are meant. ``tolerance``: any of rtol, atol, max_mismatch."""

    targets: frozenset[str] | None
    dims: Mapping[str, Guard]
    config: Mapping[str, Any]
    place: Place
    schedules: Schedules | None = None
    is_auto: bool = False
    values: Mapping[str, Collection[Any]] = field(default_factory=dict)
    tolerance: Mapping[str, float] = field(default_factory=dict)
    key_places: Mapping[str, Place] = field(default_factory=dict)

    @property
    def gives_config(self) -> bool:
        """Whether it says more than how results are checked."""
        return bool(self.config or self.schedules or self.is_auto)

    @property
    def is_idle(self) -> bool:
        """Whether it says nothing."""
        return not self.gives_config and not self.tolerance

    def is_for(self, values: Mapping[str, Any]) -> bool:
        """Whether a kernel with such values of parameters is meant."""
        return all(values[name] in meant for name, meant in self.values.items())

    def applies(self, target: Target, dims: Mapping[str, Guard]) -> bool:
        """Whether a variant is meant."""
        if not means(self.targets, target):
            return False
        return all(name in dims and implies(dims[name], guard) for name, guard in self.dims.items())

    def means_the_same(self, other: Rule) -> bool:
        """Whether both are for the same variants, whatever the kernel's."""
        return self._within(other) and other._within(self)

    def narrower_than(self, other: Rule) -> bool:
        """Whether every variant that this rule means is meant by the other, and not the other way round."""
        return self._within(other) and not other._within(self)

    def _within(self, other: Rule) -> bool:
        if other.targets is not None and not self._on_targets_of(other.targets):
            return False
        if any(not self._means(name, meant) for name, meant in other.values.items()):
            return False
        return all(
            name in self.dims and implies(self.dims[name], guard) for name, guard in other.dims.items()
        )

    def _means(self, name: str, others: Collection[Any]) -> bool:
        """Whether only such values of a parameter are meant."""
        return name in self.values and all(value in others for value in self.values[name])

    def _on_targets_of(self, names: frozenset[str]) -> bool:
        """Whether every target that is meant is among those that ``names`` stand for."""
        return self.targets is not None and not any(names.isdisjoint(each) for each in self._known_as)

    @cached_property
    def _known_as(self) -> tuple[Collection[str], ...]:
        return tuple(map(_and_groups, self.targets or ()))


@lru_cache(maxsize=256)
def known_as(target: Target) -> frozenset[str]:
    """The names by which overrides mean a target: its own, those of CPUs of its level with fewer features,
    and those of its groups."""
    counts = range(len(target.features) + 1)
    some = itertools.chain.from_iterable(itertools.combinations(target.features, n) for n in counts)
    names = (parse_target("+".join((target.level, *each))).name for each in some)
    return frozenset((*names, *family_of(target).groups))


def means(names: frozenset[str] | None, target: Target) -> bool:
    """Whether names of targets and groups mean a target; None means all."""
    return names is None or not names.isdisjoint(known_as(target))


def _and_groups(name: str) -> Collection[str]:
    """The names that mean a target or a group, and those of the groups that it is part of."""
    groups = (family.groups for family in families())
    found = next((group[group.index(name) :] for group in groups if name in group), None)
    return known_as(parse_target(name)) if found is None else found


def merge_config(base: Mapping[str, Any], rules: Sequence[Rule]) -> dict[str, Any]:
    """The config of the variants that ``rules`` apply to. Of those that give a key, one that no other narrows
    wins; of several such, the last."""
    return {**base, **_merged(rules, lambda rule: rule.config)}


def merge_places(base: Mapping[str, Place], rules: Sequence[Rule]) -> dict[str, Place]:
    """Where each value of `merge_config` stands."""
    return {**base, **_merged(rules, lambda rule: rule.key_places)}


def merge_tolerance(rules: Sequence[Rule]) -> dict[str, float]:
    """What rules say about checking the variants that they apply to: any of rtol, atol, max_mismatch."""
    return _merged(rules, lambda rule: rule.tolerance)


def merge_schedules(rules: Sequence[Rule]) -> Schedules | None:
    """The schedules of the variants that ``rules`` apply to; None where these have one config."""
    several = [rule for rule in rules if rule.schedules]
    return _winner(several).schedules if several else None


def _merged(rules: Sequence[Rule], said: Callable[[Rule], Mapping[str, Any]]) -> dict[str, Any]:
    """Each key that a rule gives, with the value of the one that wins."""
    keys = dict.fromkeys(key for rule in rules for key in said(rule))
    return {key: said(_winner([rule for rule in rules if key in said(rule)]))[key] for key in keys}


def _winner(rules: Sequence[Rule]) -> Rule:
    """Of several rules, one at least, the last of those that no other narrows."""
    if len(rules) == 1:
        return rules[0]
    return next(rule for rule in reversed(rules) if not any(other.narrower_than(rule) for other in rules))
