"""Where tensors of a call may begin on a device.

Code that moves vectors wants addresses at multiples of 16 bytes. A tensor of which every target has a variant
for the remaining calls that moves single elements may begin at any of them: the variants with vectors then
demand the alignment (`VariantRecord.align`), as a guard does, and dispatch falls through to that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilec.package.model import KernelRecord, VariantRecord

#: Bytes of a vector, at whose multiples all tensors begin but those that say otherwise (CUDA_VECTOR in
#: runtime_c/src/devices/cuda/cuda.h).
VECTOR_BYTES = 16


def with_starts(kernel: KernelRecord) -> KernelRecord:
    """The kernel, whose variants are in dispatch order. A tensor of which the last variants of each device's
    target, which serve what is left, move elements alone may begin at any of them; then each variant that
    moves it in vectors demands that it begins where these do."""
    names = [param.name for param in kernel.params if param.is_tensor]
    served: dict[object, set[str]] = {}
    for each in kernel.variants:
        served.setdefault(_calls(each), set()).update(_wide(each, names))
    wide = [served[_calls(variant)] for variant in kernel.variants]
    last = {variant.target: moved for variant, moved in zip(kernel.variants, wide, strict=True)}
    free = set(names).difference(*last.values()) if any(map(_is_on_device, kernel.variants)) else set()
    if not free:
        return kernel
    variants = (
        replace(each, align=(*each.align, *((name, VECTOR_BYTES) for name in names if name in moved & free)))
        for each, moved in zip(kernel.variants, wide, strict=True)
    )
    params = (replace(param, begins_anywhere=param.name in free) for param in kernel.params)
    return replace(kernel, params=tuple(params), variants=tuple(variants))


def _calls(variant: VariantRecord) -> object:
    """Variants for the same calls, among which cost chooses, have the same demands."""
    return variant.target, variant.guards


def _wide(variant: VariantRecord, names: Sequence[str]) -> set[str]:
    """The tensors that a variant moves in vectors, or may."""
    launches = [launch.gpu for launch in variant.image.launches if launch.gpu is not None]
    if any(launch.wide is None for launch in launches):
        return set(names)
    return {names[place] for each in launches for place in each.wide or () if place < len(names)}


def _is_on_device(variant: VariantRecord) -> bool:
    return any(launch.gpu is not None for launch in variant.image.launches)
