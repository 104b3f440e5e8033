"""A kernel whose sizes are run-time values, once more for sizes that have whole vectors.

Nobody writes guards in process. What rows of unknown pitch keep from vectors, or from copies by a unit of the
device, is up to twice as fast where the sizes of a call allow them, as is a tensor of one axis that holds at
least a vector; calls with any others take the kernel as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.dtypes import lookup
from tilec.families import family_of
from tilec.ir.guards import Guard
from tilec.ir.nodes import TensorParam
from tilec.package.dispatch.starts import VECTOR_BYTES
from tilec.sizes import names_in

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel
    from tilec.targets import Target


def for_vectors(kernel: Kernel, target: Target) -> list[Kernel]:
    """The kernel under guards on the sizes that decide which of its elements are whole vectors, those that
    demand the least first: tensors of one axis need hold a vector alone, where loops may test for their ends,
    rows lie multiples of one apart. None of them where no run-time value decides, and on CPUs, whose
    vectors begin anywhere."""
    if family_of(target).on_host:
        return []
    pitches, lengths = _counts(kernel, _pitch), _counts(kernel, _length)
    long = {name: Guard(min=count) for name, count in lengths.items()}
    even = {name: Guard(div=count) for name, count in pitches.items()}
    all_even = {name: Guard(div=count) for name, count in lengths.items()} | even
    ways = (long | even, all_even) if long.keys() - even.keys() else (even,)
    return [_under(kernel, guards) for guards in ways if guards]


def _counts(kernel: Kernel, told: Callable[[TensorParam], set[str]]) -> dict[str, int]:
    """The elements of a vector, by the dims that ``told`` names, of the tensor that has most."""
    counts: dict[str, int] = {}
    for param in kernel.params:
        if isinstance(param, TensorParam):
            count = VECTOR_BYTES * 8 // lookup(str(param.buffer.dtype)).bits
            counts |= {name: max(counts.get(name, 1), count) for name in told(param)}
    open_ = {dim.name for dim in kernel.dims if dim.guard.eq is None}
    return {name: count for name, count in counts.items() if name in open_ and count > 1}


def _pitch(param: TensorParam) -> set[str]:
    """The dims that tell how far rows of a tensor lie apart."""
    return {name for text in param.strides or param.extents[1:] for name in names_in(text)}


def _length(param: TensorParam) -> set[str]:
    """The dims that tell how many elements there are in a tensor of one axis."""
    flat = len(param.extents) == 1 and not param.strides
    return {name for text in param.extents for name in names_in(text)} if flat else set()


def _under(kernel: Kernel, guards: dict[str, Guard]) -> Kernel:
    dims = (replace(dim, guard=dim.guard & guards.get(dim.name, Guard())) for dim in kernel.dims)
    return replace(kernel, dims=tuple(dims))


def served(kernel: Kernel) -> str:
    """The sizes that a kernel serves, in words of its source."""
    guards = (f"{dim.name} {dim.guard}" for dim in kernel.dims if not dim.guard.is_dynamic)
    return ", ".join(guards) or "all other sizes"
