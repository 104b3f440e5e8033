"""What verification knows about a kernel and its variants: the library's metadata, typed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilec.errors import LibraryError
from tilec.ir.guards import Guard
from tilec.ir.num_sms import callers_dims
from tilec.package.metadata import read_guards
from tilec.portable.loader import default_of
from tilec.sizes import Literal, Node, SizeError, Visitor, evaluate_size, names_in, parse_size

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel, ScalarParam, TensorParam


@dataclass(frozen=True)
class ParamFacts:
    """A parameter: ``extents`` and ``strides`` as texts over dim names (strides None: row-major)."""

    name: str
    is_tensor: bool
    dtype: str
    access: str
    extents: tuple[str, ...]
    strides: tuple[str, ...] | None
    default: int | float | bool | None

    @property
    def is_written(self) -> bool:
        """Whether the kernel writes it."""
        return self.is_tensor and self.access != "in"

    def shape(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        """The extents for given dims."""
        return tuple(evaluate(text, dims) for text in self.extents)

    def element_strides(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        """Strides in elements for given dims."""
        if self.strides is not None:
            return tuple(evaluate(text, dims) for text in self.strides)
        shape, strides = self.shape(dims), []
        for axis in range(len(shape)):
            product = 1
            for extent in shape[axis + 1 :]:
                product *= extent
            strides.append(product)
        return tuple(strides)


@dataclass(frozen=True, eq=False)
class VariantFacts:
    """A variant; ``guards`` has the restricted dims only, ``ir_text`` its tile IR. ``tiles``: integers that
    may be tile sizes, from its config and from what its grids divide by. ``grids``: texts, per launch.
    ``align``: bytes that the addresses of some parameters must be multiples of."""

    id: int
    target: str
    guards: Mapping[str, Guard]
    tiles: frozenset[int]
    ir_text: str
    grids: tuple[tuple[str, ...], ...] = ()
    align: Mapping[str, int] = field(default_factory=dict)

    def guard(self, dim: str) -> Guard:
        """The guard of a dim."""
        return self.guards.get(dim, Guard())

    def blocks(self, dims: Mapping[str, int]) -> int:
        """Blocks of all launches for given dims; an extent that needs scalar arguments counts as 1."""
        return sum(math.prod(_extent(text, dims) for text in grid) for grid in self.grids)


@dataclass(frozen=True, eq=False)
class KernelFacts:
    """A kernel of the library; ``tolerance`` has what its manifest said about rtol, atol, max_mismatch."""

    name: str
    params: tuple[ParamFacts, ...]
    dims: tuple[str, ...]
    variants: tuple[VariantFacts, ...]
    tolerance: Mapping[str, float]

    @property
    def tensors(self) -> tuple[ParamFacts, ...]:
        """The tensor parameters."""
        return tuple(param for param in self.params if param.is_tensor)


def read_kernel(metadata: Mapping[str, Any], ir_texts: list[str]) -> KernelFacts:
    """The facts of one kernel of the metadata."""
    params = tuple(_param(entry) for entry in metadata["params"])
    variants = tuple(_variant(entry, ir_texts) for entry in metadata["variants"])
    dims = tuple(dim["name"] for dim in metadata["dims"])
    return KernelFacts(metadata["name"], params, dims, variants, metadata.get("tolerance", {}))


def _param(entry: Mapping[str, Any]) -> ParamFacts:
    strides = entry["strides"]
    return ParamFacts(
        entry["name"],
        entry["kind"] == "tensor",
        entry["dtype"],
        entry["access"],
        tuple(entry["extents"]),
        None if strides is None else tuple(strides),
        default_of(entry),
    )


def _variant(entry: Mapping[str, Any], ir_texts: list[str]) -> VariantFacts:
    grids = tuple(tuple(launch["grid"]) for launch in entry["launches"])
    text = ir_texts[entry["id"]]
    tiles, align = _tiles(entry["config"], grids), entry.get("align", {})
    return VariantFacts(entry["id"], entry["target"], read_guards(entry), tiles, text, grids, align)


def _tiles(config: Mapping[str, Any], grids: tuple[tuple[str, ...], ...]) -> frozenset[int]:
    divisors = {size for grid in grids for text in grid for size in _Divisors().visit(parse_size(text))}
    chosen = {value for value in config.values() if type(value) is int}
    return frozenset(value for value in divisors | chosen if value >= 4)


class _Divisors(Visitor[Iterator[int]]):
    """The integers that a size divides by."""

    def literal(self, value: Any) -> Iterator[int]:
        return iter(())

    def name(self, name: str) -> Iterator[int]:
        return iter(())

    def apply(self, op: str, parts: Sequence[Node]) -> Iterator[int]:
        if op == "//" and isinstance(parts[1], Literal):
            yield parts[1].value
        for part in parts:
            yield from self.visit(part)


def _extent(text: str, dims: Mapping[str, int]) -> int:
    return evaluate(text, dims) if set(names_in(text)) <= set(dims) else 1


def evaluate(text: str, dims: Mapping[str, int]) -> int:
    """An extent or stride such as ``K // 2`` for given dims.

    Raises:
        LibraryError: the text is no size, or has no value for these dims.
    """
    try:
        return evaluate_size(text, dims)
    except SizeError as error:
        raise LibraryError(
            "a size in the library's metadata cannot be computed",
            why=": ".join(part for part in (error.what, error.why) if part),
            remedy="build the library again",
        ) from error


def facts_of(kernel: Kernel, target: str, tiles: frozenset[int] = frozenset()) -> KernelFacts:
    """The facts of a kernel that is in no library, as its only variant would have them."""
    from tilec.ir.nodes import TensorParam
    from tilec.ir.text.printer import format_kernel

    dims = callers_dims(kernel)
    guards = {dim.name: dim.guard for dim in dims if not dim.guard.is_dynamic}
    variant = VariantFacts(0, target, guards, tiles, format_kernel(kernel))
    params = tuple(
        _facts_of_tensor(param) if isinstance(param, TensorParam) else _facts_of_scalar(param)
        for param in kernel.params
    )
    return KernelFacts(kernel.name, params, tuple(dim.name for dim in dims), (variant,), {})


def _facts_of_tensor(param: TensorParam) -> ParamFacts:
    dtype = str(param.buffer.dtype)
    return ParamFacts(param.name, True, dtype, param.access, param.extents, param.strides, None)


def _facts_of_scalar(param: ScalarParam) -> ParamFacts:
    return ParamFacts(param.name, False, str(param.var.ty.dtype), "in", (), None, param.default)
