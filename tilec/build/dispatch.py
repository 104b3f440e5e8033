"""Which variant of a plan serves a call: the answer that the built library will give."""

from __future__ import annotations

from collections.abc import Mapping

from tilec.build.records import restricted
from tilec.codegen.image import Image
from tilec.manifest import KernelPlan, Variant
from tilec.package.model import VariantRecord
from tilec.package.order import dispatch_order


def serving_variant(kernel: KernelPlan, target: str, dims: Mapping[str, int]) -> Variant | None:
    """The first variant of ``target``, in dispatch order, that admits ``dims``; None when none does."""
    candidates = [variant for variant in kernel.variants if variant.target.name == target]
    records = [_uncompiled(variant) for variant in candidates]
    owners = {id(record): variant for record, variant in zip(records, candidates, strict=True)}
    for record in dispatch_order(records):
        variant = owners[id(record)]
        if all(guard.admits(dims[name]) for name, guard in variant.dims.items()):
            return variant
    return None


def _uncompiled(variant: Variant) -> VariantRecord:
    """What dispatch looks at, without machine code."""
    image = Image(variant.target.name, b"", "", ())
    return VariantRecord(variant.target.name, restricted(variant), image)
