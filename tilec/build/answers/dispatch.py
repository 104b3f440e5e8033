"""Which variant of a plan serves a call: the answer that the built library will give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tilec.backends.base import limits_of
from tilec.build.records import listed_under, restricted
from tilec.codegen.image import Image
from tilec.manifest import KernelPlan, Variant
from tilec.manifest.guards import implies
from tilec.package.dispatch.choices import choices_of, taken
from tilec.package.dispatch.order import dispatch_rank
from tilec.package.dispatch.usable import may_run
from tilec.package.model import VariantRecord
from tilec.targets import parse_target

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Service:
    """How a call is served on a machine of one target.

    hit: by code made for the target and for such dims. fallback: by code of a lesser target, or by a variant
    that leaves open a dim on which a narrower variant of the same target has a guard. miss: by none, and
    ``variant`` is None."""

    kind: Literal["hit", "fallback", "miss"]
    variant: Variant | None = None


class Server:
    """A kernel on machines of one target. ``candidates``: the variants that they run, in dispatch order."""

    def __init__(self, kernel: KernelPlan, target: str) -> None:
        self.target = target
        usable = [variant for variant in kernel.variants if may_run(variant.target.name, target)]
        self.candidates = tuple(sorted(usable, key=lambda variant: dispatch_rank(_uncompiled(variant))))
        self._choices = choices_of([_uncompiled(variant) for variant in self.candidates])
        self._costs = [variant.cost for variant in self.candidates]
        self._services = [self._service(variant) for variant in self.candidates]
        machine = parse_target(target)
        self._units, self._features = limits_of(machine).units, machine.features

    def service(self, dims: Mapping[str, int]) -> Service:
        """How a call with ``dims`` is served."""
        for at, variant in enumerate(self.candidates):
            if variant.admits(dims):
                return replace(self._services[at], variant=self._cheapest(at, dims))
        return Service("miss")

    def _cheapest(self, first: int, dims: Mapping[str, int]) -> Variant:
        """The one that the library takes where number ``first`` is the first that admits the call."""
        admits = (variant.admits(dims) for variant in self.candidates)
        found = taken(
            self._choices[first],
            list(admits).__getitem__,
            self._costs,
            dims,
            self._units,
            self._features,
        )
        return self.candidates[found]

    def services(self, dims: Mapping[str, np.ndarray]) -> Iterable[tuple[Service, np.ndarray]]:
        """The same for many calls at once, arrays of the same length by dim: each service that is given, with
        a mask of the calls that it is given to. The first schedule that admits a call stands for its list."""
        import numpy as np

        left = np.ones(len(next(iter(dims.values()))) if dims else 1, np.bool_)
        for variant, service in zip(self.candidates, self._services, strict=True):
            taken = left.copy()
            for name, guard in variant.dims.items():
                taken &= guard.admits(dims[name])
            if taken.any():
                yield service, taken
            left &= ~taken
        if left.any():
            yield Service("miss"), left

    def _service(self, variant: Variant) -> Service:
        lesser = variant.target.name != self.target or _is_fallback(variant, self.candidates)
        return Service("fallback" if lesser else "hit", variant)


def _is_fallback(variant: Variant, others: Iterable[Variant]) -> bool:
    """Whether a narrower variant of the same target guards a dim that this one leaves open."""
    return any(other.target == variant.target and _specialises(other, variant) for other in others)


def _specialises(narrow: Variant, wide: Variant) -> bool:
    """Whether all that ``narrow`` admits ``wide`` admits too, and a guard stands where ``wide`` has none."""
    pairs = [(narrow.dims[name], guard) for name, guard in wide.dims.items()]
    opened = any(wider.is_dynamic and not narrower.is_dynamic for narrower, wider in pairs)
    return opened and all(implies(narrower, wider) for narrower, wider in pairs)


def _uncompiled(variant: Variant) -> VariantRecord:
    """What dispatch looks at, without machine code."""
    image = Image(variant.target.name, b"", "", ())
    return VariantRecord(
        variant.target.name,
        restricted(variant),
        image,
        cost=variant.cost,
        listed_under=listed_under(variant),
    )
