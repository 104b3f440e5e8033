"""Sweeps: where all candidates are timed at many shapes, so that schedules may be made of them that a library
chooses among by the shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilec.build.answers.dispatch import Server
from tilec.build.elaborated.frontend import elaborate_variant
from tilec.build.schedules.features import features_of
from tilec.families import family_of
from tilec.manifest import KernelPlan, Variant
from tilec.manifest.shapes import Call
from tilec.trials.drawn import drawn
from tilec.trials.facts import facts_of
from tilec.tune.plan.points import Point, calls_of

#: Elements of all tensors at a shape that is drawn: of a GPU, and of a CPU.
_ELEMENTS, _ON_HOST = 1 << 26, 1 << 21
#: Shapes that are drawn for each one that is wanted: others may belong to narrower guards.
_DRAWN = 4


@dataclass(frozen=True)
class Sweep:
    """``count`` shapes drawn by ``seed`` beside those of a model."""

    count: int = 32
    seed: int = 0


def sweep_points(
    kernel: KernelPlan, variant: Variant, calls: Sequence[Call] | None, sweep: Sweep
) -> list[Point]:
    """The calls of a model and the shapes that are drawn, as far as dispatch brings them to a variant. Raises
    UnsupportedError where no cost can be told of the kernel."""
    features_of(variant)
    facts = facts_of(elaborate_variant(variant).kernel, variant.target.name)
    most = _ON_HOST if family_of(variant.target).on_host else _ELEMENTS
    shapes = drawn(facts, facts.variants[0], _DRAWN * sweep.count, sweep.seed, most) if sweep.count else []
    server = Server(kernel, variant.target.name)
    random = [dims for dims in shapes if _serves(server, variant, dims)][: sweep.count]
    given = [point.dims for point in calls_of(kernel, variant, calls or ())]
    meant = [dims for dims in given if _serves(server, variant, dims)]
    return list({point.text: point for point in (Point(dims) for dims in (*meant, *random))}.values())


def _serves(server: Server, variant: Variant, dims: Mapping[str, int]) -> bool:
    """Whether dispatch brings a call to the guards of a variant."""
    served = server.service(dims).variant
    return served is not None and (served.target, served.dims) == (variant.target, variant.dims)
