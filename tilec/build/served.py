"""Variants that a library does without, because a call gets the same code in their place.

Guards and targets are there for code that uses them. Where it does not - a divisor that no loop of a CPU
needs, a feature of a processor that no statement asks for - a wider variant, or the one of a lesser target,
has the same machine code. That is seen once code is made; variants that lower to the same are not compiled
twice (`tilec.build.images`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from tilec.codegen.elf import without_names
from tilec.codegen.image import Image
from tilec.ir.guards import Guard
from tilec.manifest.guards import disjoint, implies
from tilec.package.choices import calls, choices
from tilec.package.model import KernelRecord, VariantRecord
from tilec.package.order import dispatch_order
from tilec.package.usable import may_run


def without_served(kernel: KernelRecord) -> KernelRecord:
    """The kernel without the variants in whose place others run the same code."""
    ordered = dispatch_order(kernel.variants)
    found = choices([calls(each.target, each.guards, each.align, each.cost) for each in ordered])
    runs = [_Run(ordered[run.start : run.stop]) for run in dict.fromkeys(found)]
    by_target = [_without_narrow(list(each)) for _, each in groupby(runs, lambda run: run.first.target)]
    held = {id(variant) for run in _without_features(by_target) for variant in run.variants}
    return replace(kernel, variants=tuple(each for each in kernel.variants if id(each) in held))


def _without_narrow(runs: Sequence[_Run]) -> list[_Run]:
    """Those of one target, in the order of dispatch, without the ones whose calls all come to the same code
    behind them."""
    kept: list[_Run] = []
    for run in reversed(runs):
        following = next((each for each in kept if run.meets(each)), None)
        if following is None or not run.is_within(following) or run.code != following.code:
            kept.insert(0, run)
    return kept


def _without_features(by_target: Sequence[Sequence[_Run]]) -> Iterable[_Run]:
    """Those of all targets, best first, without targets whose machines get the same from the next one."""
    for runs, following in zip(by_target, [*by_target[1:], ()], strict=True):
        if not following or not _is_same(runs, following):
            yield from runs


def _is_same(runs: Sequence[_Run], others: Sequence[_Run]) -> bool:
    """Whether machines of a target run the next one's code, which is the same for the same calls."""
    if len(runs) != len(others) or not may_run(others[0].first.target, runs[0].first.target):
        return False
    pairs = list(zip(runs, others, strict=True))
    return all(one.demands == other.demands for one, other in pairs) and all(
        one.code == other.code for one, other in pairs
    )


@dataclass(frozen=True)
class _Run:
    """Variants that serve the same calls, among which costs choose; most often one."""

    variants: Sequence[VariantRecord]

    @property
    def first(self) -> VariantRecord:
        """One of them, whose target and guards are those of all."""
        return self.variants[0]

    @property
    def demands(self) -> tuple[object, ...]:
        """What calls must have."""
        return self.first.guards, self.first.align

    @cached_property
    def code(self) -> tuple[object, ...]:
        """What is the same of runs that do the same."""
        return tuple((each.cost, each.takes_num_sms, *_told(each.image)) for each in self.variants)

    def meets(self, other: _Run) -> bool:
        """Whether some call may come to both."""
        return not any(disjoint(*pair) for pair in self._pairs(other))

    def is_within(self, other: _Run) -> bool:
        """Whether the other takes every call that this takes."""
        if not set(other.first.align) <= set(self.first.align):
            return False
        return all(
            implies(mine, theirs) and mine.admits(0) <= theirs.admits(0)
            for mine, theirs in self._pairs(other)
        )

    def _pairs(self, other: _Run) -> list[tuple[Guard, Guard]]:
        dims = dict.fromkeys(name for name, _ in (*self.first.guards, *other.first.guards))
        return [(self.first.guard(dim), other.first.guard(dim)) for dim in dims]


def _told(image: Image) -> tuple[object, ...]:
    """All that a call sees of an image: names of its functions, notes and roads are left out."""
    prefix = image.launches[0].symbol.rpartition("_")[0] if image.launches else ""
    bare = [replace(launch, symbol="", notes=(), roads="") for launch in image.launches]
    return without_names(image.code, prefix), tuple(bare), image.workspace, image.needs
