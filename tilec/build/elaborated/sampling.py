"""Which variants `check` elaborates of a manifest that has thousands."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tilec.manifest import Plan, Variant
from tilec.targets import Target

#: So many are elaborated in seconds.
MOST_ELABORATED = 200


@dataclass(frozen=True)
class Choice:
    """Variants of one kernel, guards and config: their tile IR is one, and they differ by target."""

    variants: tuple[Variant, ...]

    @property
    def variant(self) -> Variant:
        """The first one."""
        return self.variants[0]

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets of all of them."""
        return tuple(variant.target for variant in self.variants)


def distinct(plan: Plan) -> list[Choice]:
    """The choices of a plan, in its order."""
    found: dict[str, list[Variant]] = {}
    for variant in plan.variants:
        found.setdefault(_key(variant), []).append(variant)
    return [Choice(tuple(group)) for group in found.values()]


def sampled(choices: Sequence[Choice]) -> list[Choice]:
    """All of them, or, of more than `MOST_ELABORATED`, some in which every guard of every dim, every value of
    `for` and every config stands once, as far as `MOST_ELABORATED` of them go."""
    if len(choices) <= MOST_ELABORATED:
        return list(choices)
    chosen: list[Choice] = []
    seen: set[tuple[str, str]] = set()
    for choice in itertools.chain(_diagonal(choices), choices):
        facts = set(_facts(choice.variant))
        if len(chosen) == MOST_ELABORATED:
            break
        if facts - seen:
            seen |= facts
            chosen.append(choice)
    return chosen


def _diagonal(choices: Sequence[Choice]) -> Iterator[Choice]:
    """Of a product of lists, choices that each bring a new value of every list."""
    for group in _by_source(choices):
        table = {tuple(value for _, value in _axes(choice.variant)): choice for choice in group}
        lists = [list(dict.fromkeys(column)) for column in zip(*table, strict=True)]
        for turn in range(max(map(len, lists), default=0)):
            found = table.get(tuple(values[turn % len(values)] for values in lists))
            if found is not None:
                yield found


def _by_source(choices: Iterable[Choice]) -> list[list[Choice]]:
    """Choices about the same names."""
    groups: dict[tuple[str, ...], list[Choice]] = {}
    for choice in choices:
        names = (name for name, _ in _axes(choice.variant))
        groups.setdefault((choice.variant.source, *names), []).append(choice)
    return list(groups.values())


def _axes(variant: Variant) -> list[tuple[str, str]]:
    """What a variant chooses of each list: arguments and guards."""
    args = [(name, _text(value)) for name, value in variant.args.items()]
    return [*args, *((name, str(guard)) for name, guard in variant.dims.items())]


def _facts(variant: Variant) -> Iterator[tuple[str, str]]:
    for name, value in (*_axes(variant), ("config", _text(dict(variant.config)))):
        yield f"{variant.source} {name}", value


def _key(variant: Variant) -> str:
    guards = [(name, str(guard)) for name, guard in variant.dims.items()]
    return _text([variant.kernel, guards, dict(variant.config)])


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=repr)
