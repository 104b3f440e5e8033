"""Tensors that a caller may let overlap (T.annotate_restrict_buffers): what code must not assume of them.

Two parameters share memory only where both are named. What a launch does to one of them it may be doing to
the others: the order of its statements counts, the iterations of one T.Parallel and the elements of one tile
operation stay independent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilec.ir.nodes import Kernel, Launch


def named(launch: Launch) -> frozenset[str]:
    """The names of the tensors that may overlap."""
    return frozenset(launch.schedule.may_alias or ())


def named_in(kernel: Kernel) -> frozenset[str]:
    """The names of the tensors that may overlap in some launch; one alone has no partner."""
    return frozenset(name for launch in kernel.launches for name in named(launch))


def agreed(kernel: Kernel) -> Kernel:
    """The kernel with what one launch says of its tensors said in all: they get the same pointers."""
    names = tuple(dict.fromkeys(_names(kernel)))
    if not names:
        return kernel
    body = tuple(_saying(stmt, names) if isinstance(stmt, Launch) else stmt for stmt in kernel.body)
    return replace(kernel, body=body)


def _names(kernel: Kernel) -> Iterator[str]:
    for launch in kernel.launches:
        yield from sorted(named(launch))


def _saying(launch: Launch, names: tuple[str, ...]) -> Launch:
    return replace(launch, schedule=replace(launch.schedule, may_alias=names))
