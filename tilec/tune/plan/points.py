"""Where a guard is measured: exact dims as they are, points that somebody lists, the calls of a model."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilec.errors import ManifestError
from tilec.ir.guards import Guard
from tilec.manifest import KernelPlan, Variant
from tilec.manifest.model import Tune
from tilec.manifest.shapes import Call
from tilec.portable.dims import dims_text

if TYPE_CHECKING:
    from tilec.build.answers.dispatch import Server

#: Of a dim that may be anything.
_USUAL = 4096


@dataclass(frozen=True)
class Point:
    """Dims to measure at; ``weight`` is how often a step calls them."""

    dims: Mapping[str, int]
    weight: int = 1

    @property
    def text(self) -> str:
        """`M=16 N=4096`."""
        return dims_text(self.dims)


def points_of(kernel: KernelPlan, variant: Variant, tune: Tune, calls: Sequence[Call] | None) -> list[Point]:
    """The points of a variant: those that dispatch brings to it, and to no narrower one.

    ``calls``: those of a model, which then count alone. Dims that stand in strides alone may be missing from
    the manifest's points: what makes the arguments chooses them. Raises ManifestError for an integer where
    several dims are open."""
    from tilec.build.answers.dispatch import Server

    server = Server(kernel, variant.target.name)
    if calls is not None:
        found = calls_of(kernel, variant, calls)
    elif tune.points is not None:
        found = _listed(variant, tune.points)
    else:
        usual = _served(server, variant, {})
        found = [] if usual is None else [Point(usual)]
    return [point for point in found if _served(server, variant, point.dims) is not None]


def calls_of(kernel: KernelPlan, variant: Variant, calls: Sequence[Call]) -> list[Point]:
    """The calls of a model that are of a kernel, on the target of a variant."""
    name = variant.target.name
    meant = [call for call in calls if call.kernel == kernel.name and call.target in (None, name)]
    return [Point(dict(call.dims), call.count) for call in meant]


def _served(server: Server, variant: Variant, given: Mapping[str, int]) -> dict[str, int] | None:
    """Dims that dispatch brings to a variant, with those that are given; None where there are none."""
    choices = [[given[name]] if name in given else _usual(guard) for name, guard in variant.dims.items()]
    for values in itertools.product(*choices):
        dims = dict(zip(variant.dims, values, strict=True))
        served = server.service(dims).variant
        if served is not None and served.index == variant.index:
            return dims
    return None


def _usual(guard: Guard) -> list[int]:
    """The largest dim that a guard admits, or the usual one; one that nothing divides, for a guard that
    others with divisors stand beside."""
    if guard.eq is not None:
        return [guard.eq]
    end = guard.max if guard.max is not None else max(_USUAL, guard.min or 1)
    values = [max(end // guard.div * guard.div, guard.div), end - 1]
    return [value for value in dict.fromkeys(values) if guard.admits(value)]


def _listed(variant: Variant, points: Sequence[Any]) -> list[Point]:
    open_dims = [name for name, guard in variant.dims.items() if guard.eq is None]
    found = []
    for point in points:
        if isinstance(point, int):
            point = _only(variant, open_dims, point)
        pinned = {name: guard.eq for name, guard in variant.dims.items() if guard.eq is not None}
        dims = {**pinned, **point}
        if all(variant.dims[name].admits(value) for name, value in dims.items()):
            found.append(Point({name: dims[name] for name in variant.dims if name in dims}))
    return list({point.text: point for point in found}.values())


def _only(variant: Variant, open_dims: Sequence[str], value: int) -> dict[str, int]:
    if len(open_dims) != 1:
        raise ManifestError(
            f"the point {value} of {variant.kernel} does not say which dim it is",
            place=variant.place,
            why=f"{len(open_dims)} dims are no integers: {', '.join(open_dims) or 'none'}",
            remedy="write points as tables: { M = 8, N = 4096 }",
        )
    return {open_dims[0]: value}
