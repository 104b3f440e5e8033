"""Which dims to try for a variant: edges of its guards and tiles, tails, minimum sizes; which to see refused.

Every case is small: dims stay below a limit that depends on how many are free, and a case whose tensors hold
more than `MOST_ELEMENTS` elements, or whose grids have more than `MOST_BLOCKS` blocks, is tried only where
the guards leave nothing smaller.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np

from tilec.ir.guards import Guard
from tilec.package.model import ParamRecord, evaluate
from tilec.trials.facts import KernelFacts, VariantFacts

#: The largest value of a dim, by the number of free ones; for more of them, `CLIP`.
CLIPS = {1: 5000, 2: 500}
CLIP = 200
MOST_ELEMENTS = 1 << 19
MOST_BLOCKS = 1000
_MIXTURES = 30
Dims = dict[str, int]


def cases(kernel: KernelFacts, variant: VariantFacts, seed: int) -> Iterator[Dims]:
    """Dims that the variant admits, the smallest first; the same for every target with the same guards. More
    than anyone needs, since a kernel may not be defined for all of them."""
    free = sum(variant.guard(dim).eq is None for dim in kernel.dims)
    clip = CLIPS.get(free, CLIP)
    values = {dim: candidates(variant.guard(dim), variant.tiles, clip) for dim in kernel.dims}
    rng = np.random.default_rng(seed)
    found: list[Dims] = []
    guards = {dim: variant.guard(dim) for dim in kernel.dims}
    for base in _combinations(values, guards, rng):
        dims = with_strides(kernel, variant, base, len(found) % 2 == 1)
        if dims is None or dims in found or (found and _is_large(kernel, variant, dims)):
            continue
        found.append(dims)
        yield dims


def refused(kernel: KernelFacts, variant: VariantFacts, dims: Dims) -> list[Dims]:
    """Neighbours of ``dims`` just outside of the guards."""
    outside = []
    for dim in kernel.dims:
        for value in _edges(variant.guard(dim)):
            if value > 0 and not variant.guard(dim).admits(value):
                outside.append({**dims, dim: value})
    return [each for each in outside if is_legal(kernel, each)]


def candidates(guard: Guard, tiles: Iterable[int], clip: int = CLIP) -> list[int]:
    """Values of one dim that its guard admits: small ones, and those around its limits and around tiles."""
    if guard.eq is not None:
        return [guard.eq]
    wishes = [1, 2, 7, 35, *(wish for tile in tiles for wish in (tile - 1, tile, tile + 1, 2 * tile + 3))]
    ends = [end for end in (guard.min, guard.max) if end is not None]
    wishes += [end + offset * guard.div for end in ends for offset in (-1, 0, 1)]
    smallest = fit(guard, 1)
    fitting = {fit(guard, wish) for wish in wishes if wish > 0}
    return sorted(value for value in fitting if value == smallest or value <= clip)


def fit(guard: Guard, value: int) -> int:
    """The nearest admitted value, upwards unless the guard ends."""
    if guard.eq is not None:
        return guard.eq
    found = guard.smallest(value)
    if found is not None:
        return found
    assert guard.max is not None  # without an end there is always one
    return guard.max // guard.div * guard.div


def _is_large(kernel: KernelFacts, variant: VariantFacts, dims: Dims) -> bool:
    """Whether the tensors or the grids of a call are too large for a quick case."""
    return elements_of(kernel, dims) > MOST_ELEMENTS or variant.blocks(dims) > MOST_BLOCKS


def elements_of(kernel: KernelFacts, dims: Dims) -> int:
    """Elements of all tensors of a call."""
    return sum(math.prod(param.shape(dims)) for param in kernel.tensors)


def _combinations(
    values: Mapping[str, list[int]], guards: Mapping[str, Guard], rng: np.random.Generator
) -> Iterator[Dims]:
    """All smallest; a middle; all largest; all at the ends of their guards, and just inside of them; one dim
    at each other candidate; random mixtures."""
    smallest = {dim: options[0] for dim, options in values.items()}
    yield smallest
    middle = {dim: options[len(options) // 2] for dim, options in values.items()}
    yield middle
    yield {dim: options[-1] for dim, options in values.items()}
    ends = {dim: _inside(guard) for dim, guard in guards.items()}
    for number in range(max(map(len, ends.values()), default=0)):
        yield {dim: ends[dim][number] if number < len(ends[dim]) else smallest[dim] for dim in values}
    single = [{**middle, dim: value} for dim, options in values.items() for value in options]
    for number in rng.permutation(len(single)):
        yield single[number]
    for _ in range(_MIXTURES):
        yield {dim: int(rng.choice(options)) for dim, options in values.items()}


def _inside(guard: Guard) -> list[int]:
    """The last values that a guard admits, and their neighbours, from its limits inwards."""
    if guard.eq is not None:
        return []
    found = []
    if guard.max is not None:
        last = fit(guard, guard.max)
        found = [last, last - guard.div]
    if guard.min is not None:
        first = fit(guard, guard.min)
        found += [first, first + guard.div]
    return [value for value in dict.fromkeys(found) if value > 0 and guard.admits(value)]


def _edges(guard: Guard) -> list[int]:
    """Values beside the guard's own limits."""
    if guard.eq is not None:
        return [guard.eq - 1, guard.eq + 1]
    edges = [] if guard.min is None else [guard.min - guard.div]
    edges += [] if guard.max is None else [guard.max + guard.div]
    return edges + ([fit(guard, guard.min or 1) + 1] if guard.div != 1 else [])


@lru_cache(maxsize=256)
def stride_dims(kernel: KernelFacts) -> tuple[str, ...]:
    """Dims that stand in strides and in no extent."""
    from tilec.sizes import names_in

    extents = {name for param in kernel.tensors for text in param.extents for name in names_in(text)}
    strides = {name for param in kernel.tensors for text in param.strides or () for name in names_in(text)}
    return tuple(dim for dim in kernel.dims if dim in strides - extents)


def with_strides(kernel: KernelFacts, variant: VariantFacts, dims: Dims, padded: bool) -> Dims | None:
    """``dims`` with strides that keep elements apart: as small as possible, or with ``padded`` a little
    larger; None where the guards leave no such strides."""
    free = [dim for dim in stride_dims(kernel) if variant.guard(dim).eq is None]
    if not free:
        return dims if is_legal(kernel, dims) else None
    chosen = {**dims, **{dim: fit(variant.guard(dim), 1) for dim in free}}
    for _ in kernel.tensors:  # a stride that two tensors share may have to grow for either
        for param in kernel.tensors:
            _clear_axes(param, variant, chosen, free, 5 if padded else 0)
    return chosen if is_legal(kernel, chosen) else None


def _clear_axes(
    param: ParamRecord, variant: VariantFacts, chosen: Dims, free: Sequence[str], padding: int
) -> None:
    """Raises the free strides of a tensor until each clears the axes behind it, by ``padding`` or more."""
    reach = 1
    for text, extent in reversed(list(zip(param.strides or (), param.shape(chosen), strict=False))):
        if text in free:
            chosen[text] = max(chosen[text], fit(variant.guard(text), reach + padding))
        reach = max(reach, evaluate(text, chosen) * extent)


def is_legal(kernel: KernelFacts, dims: Dims) -> bool:
    """Whether no extent is below zero and no two elements of a tensor share their memory."""
    for param in kernel.tensors:
        shape = param.shape(dims)
        if min(shape, default=1) < 0:
            return False
        axes = sorted(zip(param.element_strides(dims), shape, strict=True))
        reach = 1
        for stride, extent in axes:
            if extent > 1 and stride < reach:
                return False
            reach = max(reach, stride * extent)
    return True
