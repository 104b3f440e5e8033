"""A kernel whose sizes are run-time values, once more for sizes that are multiples of vectors.

Nobody writes guards in process. What rows of unknown pitch keep from vectors, or from copies by a unit of the
device, is up to twice as fast where the sizes of a call allow them; calls with any others take the kernel as
it is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.dtypes import lookup
from tilec.families import family_of
from tilec.ir.guards import Guard
from tilec.ir.nodes import TensorParam
from tilec.package.starts import VECTOR_BYTES
from tilec.sizes import names_in

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel
    from tilec.targets import Target


def for_multiples(kernel: Kernel, target: Target) -> Kernel | None:
    """The kernel under guards on the sizes that decide where rows of its tensors begin; None where no
    run-time value does, and on CPUs, whose vectors begin anywhere."""
    if family_of(target).on_host:
        return None
    counts: dict[str, int] = {}
    for param in kernel.params:
        if isinstance(param, TensorParam):
            count = VECTOR_BYTES * 8 // lookup(str(param.buffer.dtype)).bits
            counts |= {name: max(counts.get(name, 1), count) for name in _pitch(param)}
    guards = [dim.guard & Guard(div=counts.get(dim.name, 1)) for dim in kernel.dims]
    if guards == [dim.guard for dim in kernel.dims]:
        return None
    dims = (replace(dim, guard=guard) for dim, guard in zip(kernel.dims, guards, strict=True))
    return replace(kernel, dims=tuple(dims))


def _pitch(param: TensorParam) -> set[str]:
    """The dims that tell how far rows of a tensor lie apart; of one row, its length."""
    texts = param.strides or param.extents[1:] or param.extents
    return {name for text in texts for name in names_in(text)}


def served(kernel: Kernel) -> str:
    """The sizes that a kernel serves, in words of its source."""
    guards = [f"{dim.name} % {dim.guard.div} == 0" for dim in kernel.dims if dim.guard.div > 1]
    return ", ".join(guards) or "all other sizes"
