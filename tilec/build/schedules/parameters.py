"""The space of a kernel that gives none: which parameters of its factory are sizes of tiles, stages and
threads, told by what becomes of its tile IR and of its results when one of them changes.

A size of a tile is an integer that moves grids, tiles or parallel loops, and neither the signature nor a
result: small calls are compared by the interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

from tilec.backends.base import limits_of
from tilec.build.elaborated.frontend import elaborate_variant
from tilec.errors import TilecError, UnsupportedError
from tilec.families import family_of
from tilec.ir import nodes
from tilec.language.frontend.elaborate import defaults, load_entry
from tilec.lowering.emission.texts import int_text
from tilec.manifest import Variant
from tilec.package.model import Signature, signature
from tilec.trials.comparison import compare
from tilec.trials.facts import KernelFacts, facts_of
from tilec.trials.oracle import Author, Oracle
from tilec.trials.shapes import cases

#: What is tried: multiples of a parameter's own value, by what it is.
_TILES, _DEPTHS = (0.25, 0.5, 1, 2), (0.5, 1, 2)
#: Sizes of tiles on a GPU unless its own is less or more, threads and stages there. A CPU has a thread for a
#: block, and no stages.
_LEAST, _MOST, _THREADS, _STAGES = 16, 256, (128, 256), (2, 4)
#: Blocks that share the K of a tile.
_PARTS = (1, 2, 4)
#: Small calls that are compared, and how many are tried to find them.
_CASES, _ATTEMPTS = 2, 6


@dataclass(frozen=True)
class _Form:
    """What a parameter may change of a kernel."""

    about: Signature
    grids: tuple[str, ...]
    threads: tuple[int, ...]
    stages: tuple[int, ...]
    tiles: tuple[str, ...]


class _Probe(NamedTuple):
    """A kernel with one parameter changed, and what it has become."""

    kernel: nodes.Kernel
    form: _Form


def derived_axes(variant: Variant) -> dict[str, tuple[int, ...]]:
    """The parameters to choose, with the values to try; what ``config = "auto"`` leaves fixed stays as it is.
    Raises UnsupportedError for a kernel without such parameters, and what elaboration raises."""
    base = _probe(variant)
    own = _Results(base.kernel, variant.target.name)
    axes = {name: _axis(variant, name, value, base.form, own) for name, value in _integers(variant)}
    if axes and _shares_depth(base.kernel, variant):
        axes["split_k"] = _PARTS
    found = {name: values for name, values in axes.items() if len(values) > 1}
    if not found:
        raise UnsupportedError(
            f"{variant.kernel} has no parameters that a schedule could choose",
            place=variant.place,
            why="none of the integers that its factory has as defaults changes tiles, stages or threads, and "
            "no result",
            remedy="give sizes of tiles as parameters with defaults, or list configs in [kernel.tune]",
        )
    return found


def _shares_depth(kernel: nodes.Kernel, variant: Variant) -> bool:
    """Whether blocks may share the K of a tile: of one product on a target whose products have warp roles."""
    products = [stmt for stmt in nodes.walk(kernel.body) if isinstance(stmt, nodes.PRODUCTS)]
    is_free = "split_k" not in variant.config or not variant.is_auto
    return is_free and len(products) == 1 and limits_of(variant.target).wants_bulk_copies


def _integers(variant: Variant) -> Iterator[tuple[str, int]]:
    """Parameters that may be chosen, and their values."""
    bound = {*variant.dims, *variant.args, *(variant.config if variant.is_auto else ())}
    given = {**defaults(load_entry(variant.source, variant.base)), **variant.config}
    for name, value in given.items():
        if type(value) is int and value > 0 and name not in bound:
            yield name, value


def _axis(variant: Variant, name: str, value: int, base: _Form, own: _Results) -> tuple[int, ...]:
    """The values to try of a parameter; its own alone where it is none to choose."""
    probe = next((found for found in _changed(variant, name, value) if found.form != base), None)
    if probe is None or probe.form.about != base.about or not own.are_those_of(probe.kernel):
        return (value,)
    on_host = family_of(variant.target).on_host
    if probe.form.threads != base.threads:
        return (value,) if on_host else _merged(value, _THREADS)
    if probe.form.stages != base.stages:
        return (value,) if on_host else _merged(value, _STAGES)
    return _sizes(value, _TILES if probe.form.grids != base.grids else _DEPTHS, on_host)


def _sizes(value: int, factors: tuple[float, ...], on_host: bool) -> tuple[int, ...]:
    wished = (int(value * factor) for factor in factors if value * factor % 1 == 0)
    least, most = min(_LEAST, value), max(_MOST, value)
    return _merged(value, tuple(size for size in wished if on_host or least <= size <= most))


def _merged(value: int, others: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({value, *others}))


def _changed(variant: Variant, name: str, value: int) -> Iterator[_Probe]:
    """The kernel with half and twice the value of a parameter, where it has such."""
    for other in (value // 2, value * 2):
        try:
            yield _probe(replace(variant, config={**variant.config, name: other}))
        except TilecError:
            continue


def _probe(variant: Variant) -> _Probe:
    kernel = elaborate_variant(variant).kernel
    names = {dim.var: dim.name for dim in kernel.dims if dim.var is not None}
    stmts = list(nodes.walk(kernel.body))
    launches = kernel.launches
    return _Probe(
        kernel,
        _Form(
            signature(kernel),
            tuple(_text(extent, names) for launch in launches for extent in launch.grid),
            tuple(math.prod(launch.threads) for launch in launches),
            tuple(stmt.num_stages for stmt in stmts if isinstance(stmt, nodes.Pipelined)),
            tuple(_extents(stmt) for stmt in stmts if isinstance(stmt, (nodes.Alloc, nodes.Parallel))),
        ),
    )


def _extents(stmt: nodes.Alloc | nodes.Parallel) -> str:
    return str(list(stmt.buffer.shape if isinstance(stmt, nodes.Alloc) else stmt.extents))


def _text(extent: Any, names: Mapping[Any, str]) -> str:
    try:
        return int_text(extent, names)
    except UnsupportedError:
        return ""


class _Results:
    """What a kernel computes on small calls; ``kernel`` with its own values of parameters."""

    def __init__(self, kernel: nodes.Kernel, target: str) -> None:
        self._facts = facts_of(kernel, target)
        self._oracle = Oracle(self._facts, Author())
        self._known = list(islice(self._cases(), _CASES))

    def _cases(self) -> Iterator[tuple[Mapping[str, int], Any]]:
        (variant,) = self._facts.variants
        tried = islice(cases(self._facts, variant, 0), 1, _ATTEMPTS)  # the first has one tile
        for number, dims in enumerate(tried):
            expected = self._oracle.expect(variant, dims, number)
            if not expected.problem:
                yield dims, expected

    def are_those_of(self, kernel: nodes.Kernel) -> bool:
        """Whether another kernel computes the same, as far as is known."""
        other = facts_of(kernel, self._facts.variants[0].target)
        return bool(self._known) and all(self._is_same(other, *case) for case in self._known)

    def _is_same(self, other: KernelFacts, dims: Mapping[str, int], expected: Any) -> bool:
        tolerance = self._oracle.tolerance(self._facts.variants[0])
        try:
            found = self._oracle.interpreted(other.variants[0], expected.values, dims)
        except TilecError:
            return False
        return all(
            not compare(name, found[name], one, tolerance).text for name, one in expected.outputs.items()
        )
