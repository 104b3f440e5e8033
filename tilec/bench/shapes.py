"""Which dims to measure a kernel at where nobody says: one shape for each choice of guards, large enough to
keep a machine busy and small enough to fit in memory many times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tilec.trials.facts import KernelFacts, VariantFacts
from tilec.trials.shapes import fit, with_strides

_SIZE = 1024
_MOST_ELEMENTS = 1 << 22


def typical_shapes(kernel: KernelFacts) -> Iterator[dict[str, int]]:
    """Dims that the variants admit, each once, in dispatch order."""
    seen = []
    for variant in kernel.variants:
        dims = _typical(kernel, variant)
        if dims is not None and dims not in seen:
            seen.append(dims)
            yield dims


def _typical(kernel: KernelFacts, variant: VariantFacts) -> dict[str, int] | None:
    """Free dims of one size, as large as guards and memory let them be."""
    size = _SIZE
    while size:
        wanted = {dim: fit(variant.guard(dim), size) for dim in kernel.dims}
        dims = with_strides(kernel, variant, wanted, False)
        if dims is not None and (_elements(kernel, dims) <= _MOST_ELEMENTS or size == 1):
            return dims
        size //= 2
    return None


def _elements(kernel: KernelFacts, dims: Mapping[str, int]) -> int:
    return sum(int(np.prod(param.shape(dims), dtype=np.int64)) for param in kernel.tensors)
