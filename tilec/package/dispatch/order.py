"""The order in which variants of one kernel are tried."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilec.ir.guards import Guard
from tilec.package.model import VariantRecord
from tilec.targets import parse_target


def dispatch_order(variants: Sequence[VariantRecord]) -> tuple[VariantRecord, ...]:
    """Best architecture first. Within one: more equality guards; then bounded ranges, narrower first; then
    the larger product of divisors; then one-sided bounds, tighter first; then larger demands on alignment;
    then the given (manifest) order. Schedules of one list stay together: guards of their own order them
    among each other alone, as no list is the better one for what part of the calls its schedules share."""
    return tuple(sorted(variants, key=dispatch_rank))


def target_order(variants: Sequence[VariantRecord]) -> tuple[str, ...]:
    """The target names of ``variants``, best first."""
    names = {variant.target for variant in variants}
    return tuple(sorted(names, key=lambda name: parse_target(name).rank, reverse=True))


def dispatch_rank(variant: VariantRecord) -> tuple[object, ...]:
    """Orders variants: the least is tried first."""
    rank = tuple(-part for part in parse_target(variant.target).rank)
    pins = sum(guard.eq is not None for _, guard in variant.guards)
    listed = variant.guards if variant.listed_under is None else variant.listed_under
    return (rank, -pins, *_narrowness(listed), *_narrowness(variant.guards), -_alignment(variant))


def _narrowness(named: Sequence[tuple[str, Guard]]) -> tuple[object, ...]:
    """Orders guards, the narrowest first."""
    guards = [guard for _, guard in named]
    return _ranges(guards), -_divisors(guards), _bounds(guards)


def _alignment(variant: VariantRecord) -> int:
    return math.prod(value for _, value in variant.align)


def _ranges(guards: Sequence[Guard]) -> tuple[int, int]:
    """(minus the number of bounded ranges, the product of their widths)."""
    widths = [g.max - g.min + 1 for g in guards if g.eq is None and g.min is not None and g.max is not None]
    return (-len(widths), math.prod(widths))


def _divisors(guards: Sequence[Guard]) -> int:
    return math.prod(guard.div for guard in guards if guard.eq is None)


def _bounds(guards: Sequence[Guard]) -> tuple[int, int, int]:
    """(minus the number of one-sided bounds, minus the lower ones' sum, the upper ones' sum)."""
    one_sided = [g for g in guards if g.eq is None and (g.min is None) != (g.max is None)]
    lower = sum(g.min for g in one_sided if g.min is not None)
    upper = sum(g.max for g in one_sided if g.max is not None)
    return (-len(one_sided), -lower, upper)
