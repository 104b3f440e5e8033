"""``config = "auto"``: the few schedules of a variant that the cost model holds for the best, with what they
cost as texts over dims. No device takes part."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tilec.backends.base import limits_of
from tilec.backends.limits import Limits
from tilec.build.elaborated.frontend import elaborate_variant
from tilec.build.schedules.cost import predicted_seconds, tensor_bytes
from tilec.build.schedules.examine import Examined, Refused, examine
from tilec.build.schedules.features import Features, features_of
from tilec.build.schedules.fit import Times, few
from tilec.build.schedules.promising import promising
from tilec.build.schedules.sketch import sketch
from tilec.build.schedules.space import Config, space_for
from tilec.errors import CompileError, TilecError, UnsupportedError
from tilec.ir.schedule import KEYS
from tilec.language.frontend.elaborate import load_entry, parameters
from tilec.language.frontend.schedules import schedule_of, scheduled
from tilec.manifest import Variant
from tilec.manifest.model import Tune
from tilec.trials.drawn import drawn
from tilec.trials.facts import facts_of
from tilec.trials.shapes import Dims

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel

#: Cores of a usual CPU.
_FACTS = {"cores": 8}
#: Kernels that are elaborated, and configs that are lowered, at most; shapes that they are judged at.
_SKETCHED, _LOWERED, _SHAPES = 96, 20, 40
#: Elements of all tensors at such a shape.
_ELEMENTS = 1 << 28
#: Schedules of a variant, and what each must gain in the mean.
_MOST, _GAIN = 10, 0.005


class Chosen(NamedTuple):
    """A config and its cost; the cost is empty where it is the only one."""

    config: Config
    cost: str


def automatic(variant: Variant, tune: Tune) -> list[Chosen]:
    """The schedules of a variant, the most useful first. ``tune``: where its kernel gives a space.

    Raises what elaboration raises, UnsupportedError where there is nothing to choose, CompileError where no
    config can be had."""
    limits = limits_of(variant.target, _FACTS)
    space = space_for(variant, tune)
    sketches = _Sketches(variant)
    candidates = dict(enumerate(_thinned([variant.config, *space.configs()], sketches.own)))
    shapes = _shapes(variant)
    sketched = {at: one for at, config in candidates.items() if (one := sketches.of(config)) is not None}
    lowered = _lowered(variant, candidates, promising(_predicted(sketched, shapes, limits), _LOWERED))
    if not lowered:
        raise CompileError(
            f"no config of {variant.title} is possible",
            place=variant.place,
            why=f"{len(candidates)} were tried",
            remedy="give a config",
        )
    return _chosen(variant, candidates, _predicted(lowered, shapes, limits), shapes, limits.units)


def _thinned(configs: Sequence[Config], own: Callable[[Config], str]) -> list[Config]:
    """All of them, or the first and those of some kernels: ``own`` names the kernel of a config."""
    kernels = list(dict.fromkeys(map(own, configs)))
    if len(kernels) > _SKETCHED:
        kernels = [kernels[0], *random.Random(0).sample(kernels[1:], _SKETCHED - 1)]
    return [config for config in configs if own(config) in set(kernels)]


def _shapes(variant: Variant) -> list[Dims]:
    """Shapes within the guards."""
    facts = facts_of(elaborate_variant(variant).kernel, variant.target.name)
    return drawn(facts, facts.variants[0], _SHAPES, 0, _ELEMENTS)


class _Sketches:
    """Configs as the tile IR tells them, each kernel elaborated once for all schedule keys."""

    def __init__(self, variant: Variant) -> None:
        self._variant = variant
        self._names = parameters(load_entry(variant.source, variant.base))
        self._kernels: dict[str, Kernel | None] = {}

    def own(self, config: Config) -> str:
        """Names the kernel of a config: its values without the schedule keys."""
        return repr(sorted(self._parameters(config).items()))

    def of(self, config: Config) -> Examined | None:
        """None for a config that is none of the kernel's."""
        name = self.own(config)
        try:
            if name not in self._kernels:
                self._kernels[name] = None
                self._kernels[name] = elaborate_variant(_with(self._variant, self._parameters(config))).kernel
            kernel = self._kernels[name]
            keys = schedule_of(config, self._names)
            return None if kernel is None else sketch(scheduled(kernel, keys))
        except TilecError:
            return None

    def _parameters(self, config: Config) -> dict[str, Any]:
        return {key: value for key, value in config.items() if key in self._names or key not in KEYS}


def _lowered(
    variant: Variant, candidates: Mapping[int, Config], numbers: Sequence[int]
) -> dict[int, Examined]:
    """Those that the target can have, of several with the same code the first."""
    found: dict[str, tuple[int, Examined]] = {}
    for number in numbers:
        made = examine(_with(variant, candidates[number]))
        if not isinstance(made, Refused):
            found.setdefault(made.code, (number, made))
    return dict(found.values())


def _predicted(
    examined: Mapping[int, Examined], shapes: Sequence[Dims], limits: Limits
) -> dict[int, list[float]]:
    """Seconds of each config at each shape."""
    return {
        number: [
            predicted_seconds(one, dims, tensor_bytes(one.signature.params, dims), limits) for dims in shapes
        ]
        for number, one in examined.items()
    }


def _chosen(
    variant: Variant,
    candidates: Mapping[int, Config],
    seconds: Mapping[int, Sequence[float]],
    shapes: Sequence[Dims],
    units: int,
) -> list[Chosen]:
    times = [
        Times(dims, {number: each[at] * 1e6 for number, each in seconds.items()})
        for at, dims in enumerate(shapes)
    ]
    costs = few(_features(variant, candidates, list(seconds)), times, times, units, _MOST, _GAIN)
    if not costs:
        best = min(seconds, key=lambda number: sum(seconds[number]))
        return [Chosen(candidates[best], "")]
    return [Chosen(candidates[number], text if len(costs) > 1 else "") for number, text in costs.items()]


def _features(
    variant: Variant, candidates: Mapping[int, Config], numbers: Sequence[int]
) -> dict[int, Features]:
    """What costs are made of; nothing where no text can say what a call takes."""
    try:
        return {number: features_of(_with(variant, candidates[number])) for number in numbers}
    except UnsupportedError:
        return {}


def _with(variant: Variant, config: Mapping[str, Any]) -> Variant:
    return replace(variant, config=config)
