"""Variants that a library does without, because a call gets the same code in their place.

Guards and targets are there for code that uses them. Where it does not - a divisor that no loop of a CPU
needs, a feature of a processor that no statement asks for - a wider variant, or the one of a lesser target,
has the same machine code, and dispatch, which goes from the best target of a machine down, comes to that
where the variant is missing. That is seen once code is made; variants that lower to the same are not compiled
twice (`tilec.build.reuse.images`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import or_

from tilec.codegen.elf import without_names
from tilec.codegen.image import Image
from tilec.ir.guards import Guard
from tilec.package.dispatch.choices import choices_of
from tilec.package.dispatch.order import dispatch_order
from tilec.package.dispatch.usable import may_run
from tilec.package.model import KernelRecord, VariantRecord


def without_served(kernel: KernelRecord) -> KernelRecord:
    """The kernel without the variants in whose place others run the same code."""
    runs = _runs(dispatch_order(kernel.variants))
    held = [variant for run in _without_same(runs) for variant in run.variants]
    kept = tuple(each for each in kernel.variants if any(each is one for one in held))
    left = (each for each in kernel.variants if not any(each is one for one in kept))
    return replace(kernel, variants=kept, left_out=tuple((each.target, each.guards) for each in left))


def _runs(ordered: Sequence[VariantRecord]) -> list[_Run]:
    found = choices_of(ordered)
    runs = list(dict.fromkeys(run for choice in found for run in choice))
    numbers = {run: number for number, run in enumerate(sorted(runs, key=_start))}
    return [
        _Run(ordered[run.start : run.stop], sum(1 << numbers[each] for each in found[run.start]))
        for run in numbers
    ]


def _start(run: range) -> int:
    return run.start


def _without_same(runs: Sequence[_Run]) -> list[_Run]:
    """Those in the order of dispatch, but for the ones whose calls get the same code without them, on every
    machine."""
    sets = _admitting(runs)
    left = (1 << len(runs)) - 1
    for number in reversed(range(len(runs))):
        for parts in dict.fromkeys((1 << number, _meeting(runs, number))):
            used = {each & left for each in sets if _compared(runs, each & left) & parts}
            if used and all(_code(runs, each & ~parts) == _code(runs, each) for each in used):
                left &= ~parts
    return [run for number, run in enumerate(runs) if left >> number & 1]


def _meeting(runs: Sequence[_Run], number: int) -> int:
    """The runs that are compared with one, or with one of these, as bits. Calls that choose among several get
    the same code without these where they do not without one."""
    found, added = 0, runs[number].compared
    while added:
        found |= added
        added = _union(run.compared for at, run in enumerate(runs) if added >> at & 1) & ~found
    return found


def _union(sets: Iterable[int]) -> int:
    return reduce(or_, sets, 0)


def _compared(runs: Sequence[_Run], admitting: int) -> int:
    """Of the runs that admit a call, as bits, those among which it chooses."""
    first = _first(admitting)
    return 0 if first is None else runs[first].compared & admitting


def _code(runs: Sequence[_Run], admitting: int) -> set[object]:
    """All the code that such a call chooses among."""
    compared = _compared(runs, admitting)
    return {code for number, run in enumerate(runs) if compared >> number & 1 for code in run.code}


def _first(numbers: int) -> int | None:
    """The least number of a set, which bits say; None of an empty one."""
    return (numbers & -numbers).bit_length() - 1 if numbers else None


def _admitting(runs: Sequence[_Run]) -> set[int]:
    """For every call that there can be on every machine, the runs that take it, as bits."""
    sets = _machines(runs)
    for dim in dict.fromkeys(name for run in runs for name, _ in run.first.guards):
        guards = [run.first.guard(dim) for run in runs]
        taken = {_bits(guard.admits(value) for guard in guards) for value in _values(guards)}
        sets = {each & other for each in sets for other in taken}
    for number, run in enumerate(runs):
        if run.first.align:  # which pointers may have or not
            sets |= {each & ~(1 << number) for each in sets}
    return sets


def _machines(runs: Sequence[_Run]) -> set[int]:
    """The runs that a machine may run, as bits: of each target, and of those with the features of several."""
    targets = [run.first.target for run in runs]
    machines = set[int]()
    for machine in dict.fromkeys(targets):
        runnable = _bits(may_run(target, machine) for target in targets)
        machines |= {runnable, *(runnable | other for other in machines)}
    return machines


def _bits(truths: Iterable[bool]) -> int:
    return sum(1 << number for number, truth in enumerate(truths) if truth)


def _values(guards: Sequence[Guard]) -> set[int]:
    """Values of a dim that stand for all: each bound, and behind it the first one of each kind that divisors
    tell apart. Those are as many as there are least common multiples of some of them, however large."""
    edges = {edge for each in guards for edge in (each.eq, each.min, each.max) if edge is not None}
    divisors = {each.div for each in guards}
    multiples = {1}
    for divisor in divisors:
        multiples |= {math.lcm(divisor, each) for each in multiples}
    behind = {_next_multiple(edge, each, divisors) for edge in (0, *edges) for each in multiples}
    return {0, *edges} | behind


def _next_multiple(edge: int, of: int, divisors: Iterable[int]) -> int:
    """The first value above ``edge`` that ``of`` divides, and none of the divisors but those that divide
    ``of``: every such value is of one kind."""
    others = [each for each in divisors if of % each]
    value = edge - edge % of + of
    while any(value % each == 0 for each in others):
        value += of
    return value


@dataclass(frozen=True)
class _Run:
    """Variants with the same guards, among which costs choose; most often one. ``compared``: the runs that
    may be compared with it, as bits, its own among them."""

    variants: Sequence[VariantRecord]
    compared: int

    @property
    def first(self) -> VariantRecord:
        """One of them, whose target and guards are those of all."""
        return self.variants[0]

    @cached_property
    def code(self) -> tuple[object, ...]:
        """What is the same of runs that do the same."""
        return tuple((each.cost, each.takes_num_sms, *_told(each.image)) for each in self.variants)


def _told(image: Image) -> tuple[object, ...]:
    """All that a call sees of an image: names of its functions, notes and roads are left out."""
    prefix = image.launches[0].symbol.rpartition("_")[0] if image.launches else ""
    bare = [replace(launch, symbol="", notes=(), roads="") for launch in image.launches]
    return without_names(image.code, prefix), tuple(bare), image.workspace, image.needs
