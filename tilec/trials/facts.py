"""What verification knows about a kernel and its variants: the library's metadata, typed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilec.ir.guards import Guard
from tilec.ir.num_sms import callers_dims
from tilec.package.library.metadata import read_guards, read_listed, read_param
from tilec.package.model import ParamRecord, evaluate, signature
from tilec.sizes import Apply, Literal, names_in, parse_size, walk

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel


@dataclass(frozen=True, eq=False)
class VariantFacts:
    """A variant; ``guards`` has the restricted dims only, ``ir_text`` its tile IR. ``tiles``: integers that
    may be tile sizes, from its config and from what its grids divide by. ``grids``: texts, per launch.
    ``align``: bytes that the addresses of some parameters must be multiples of. ``cost``: of a schedule among
    several; ``listed_under``: the guards of all of these, None where they are ``guards``. ``tolerance``: what
    its manifest said about it beside what it said about its kernel."""

    id: int
    target: str
    guards: Mapping[str, Guard]
    tiles: frozenset[int]
    ir_text: str
    grids: tuple[tuple[str, ...], ...] = ()
    align: Mapping[str, int] = field(default_factory=dict)
    cost: str = ""
    listed_under: Mapping[str, Guard] | None = None
    tolerance: Mapping[str, float] = field(default_factory=dict)

    def guard(self, dim: str) -> Guard:
        """The guard of a dim."""
        return self.guards.get(dim, Guard())

    def admits(self, dims: Mapping[str, int]) -> bool:
        """Whether its guards hold."""
        return all(guard.admits(dims[name]) for name, guard in self.guards.items())

    def blocks(self, dims: Mapping[str, int]) -> int:
        """Blocks of all launches for given dims; an extent that needs scalar arguments counts as 1."""
        return sum(math.prod(_extent(text, dims) for text in grid) for grid in self.grids)


@dataclass(frozen=True, eq=False)
class KernelFacts:
    """A kernel of the library; ``tolerance`` has what its manifest said about rtol, atol, max_mismatch."""

    name: str
    params: tuple[ParamRecord, ...]
    dims: tuple[str, ...]
    variants: tuple[VariantFacts, ...]
    tolerance: Mapping[str, float]

    @property
    def tensors(self) -> tuple[ParamRecord, ...]:
        """The tensor parameters."""
        return tuple(param for param in self.params if param.is_tensor)

    def terms(self, dims: Mapping[str, int]) -> int:
        """So many terms a sum may have: the elements of a tensor that is read along axes that nothing which
        is written has."""
        kept = {text for param in self.tensors if param.is_written for text in param.extents}
        summed = ([text for text in param.extents if text not in kept] for param in self.tensors)
        return max((math.prod(evaluate(text, dims) for text in axes) for axes in summed), default=1)


def read_kernel(metadata: Mapping[str, Any], ir_texts: list[str]) -> KernelFacts:
    """The facts of one kernel of the metadata."""
    params = tuple(read_param(entry) for entry in metadata["params"])
    variants = tuple(_variant(entry, ir_texts) for entry in metadata["variants"])
    dims = tuple(dim["name"] for dim in metadata["dims"])
    return KernelFacts(metadata["name"], params, dims, variants, metadata.get("tolerance", {}))


def _variant(entry: Mapping[str, Any], ir_texts: list[str]) -> VariantFacts:
    grids = tuple(tuple(launch["grid"]) for launch in entry["launches"])
    text = ir_texts[entry["id"]]
    tiles, align = _tiles(entry["config"], grids), entry.get("align", {})
    guards, listed, cost = read_guards(entry), read_listed(entry), entry.get("cost", "")
    tolerance = entry.get("tolerance", {})
    return VariantFacts(
        entry["id"], entry["target"], guards, tiles, text, grids, align, cost, listed, tolerance
    )


def _tiles(config: Mapping[str, Any], grids: tuple[tuple[str, ...], ...]) -> frozenset[int]:
    divisors = {size for grid in grids for text in grid for size in _divisors(text)}
    chosen = {value for value in config.values() if type(value) is int}
    return frozenset(value for value in divisors | chosen if value >= 4)


def _divisors(text: str) -> Iterator[int]:
    """The integers that a size divides by."""
    for node in walk(parse_size(text)):
        if isinstance(node, Apply) and node.op == "//" and isinstance(node.parts[1], Literal):
            yield node.parts[1].value


def _extent(text: str, dims: Mapping[str, int]) -> int:
    return evaluate(text, dims) if set(names_in(text)) <= set(dims) else 1


def facts_of(kernel: Kernel, target: str, tiles: frozenset[int] = frozenset()) -> KernelFacts:
    """The facts of a kernel that is in no library, as its only variant would have them."""
    from tilec.ir.text.printer import format_kernel

    about, guards = signature(kernel), {dim.name: dim.guard for dim in callers_dims(kernel)}
    restricted = {name: guard for name, guard in guards.items() if not guard.is_dynamic}
    variant = VariantFacts(0, target, restricted, tiles, format_kernel(kernel))
    return KernelFacts(kernel.name, about.params, tuple(guards), (variant,), {})
