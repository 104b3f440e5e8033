"""Which variant of a plan serves a call: the answer that the built library will give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from tilec.build.records import restricted
from tilec.codegen.image import Image
from tilec.manifest import KernelPlan, Variant
from tilec.manifest.guards import implies
from tilec.package.model import VariantRecord
from tilec.package.order import dispatch_order
from tilec.package.usable import may_run


@dataclass(frozen=True)
class Service:
    """How a call is served on a machine of one target.

    hit: by code made for the target and for such dims. fallback: by code of a lesser target, or by a variant
    that leaves open a dim on which a narrower variant of the same target has a guard. miss: by none, and
    ``variant`` is None."""

    kind: Literal["hit", "fallback", "miss"]
    variant: Variant | None = None


def service(kernel: KernelPlan, target: str, dims: Mapping[str, int]) -> Service:
    """How a machine of ``target`` serves a call of ``kernel`` with ``dims``."""
    variant = serving_variant(kernel, target, dims)
    if variant is None:
        return Service("miss")
    if variant.target.name != target or _is_fallback(variant, kernel.variants):
        return Service("fallback", variant)
    return Service("hit", variant)


def serving_variant(kernel: KernelPlan, target: str, dims: Mapping[str, int]) -> Variant | None:
    """The first variant, in dispatch order, that a machine of ``target`` may run and that admits ``dims``;
    None when there is none."""
    candidates = [variant for variant in kernel.variants if may_run(variant.target.name, target)]
    records = [_uncompiled(variant) for variant in candidates]
    owners = {id(record): variant for record, variant in zip(records, candidates, strict=True)}
    for record in dispatch_order(records):
        variant = owners[id(record)]
        if all(guard.admits(dims[name]) for name, guard in variant.dims.items()):
            return variant
    return None


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
    return VariantRecord(variant.target.name, restricted(variant), image)
