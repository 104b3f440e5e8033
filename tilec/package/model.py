"""What the package is made of: plain records, no TVM objects, so that they cross processes and live in the
cache.

PackageSpec -> KernelRecord -> ParamRecord, DimRecord, VariantRecord -> Image
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilec.codegen.image import Image
from tilec.errors import LibraryError, PackageError, Place
from tilec.ir.guards import Guard, largest_dim
from tilec.sizes import SizeError, evaluate_size
from tilec.spelling import counted
from tilec.targets import Host

if TYPE_CHECKING:
    from tilec.ir.nodes import Dim, Kernel, Param

TENSOR, SCALAR = "tensor", "scalar"


@dataclass(frozen=True)
class ParamRecord:
    """One parameter of the C signature. ``kind`` is "tensor" or "scalar"; ``extents`` and ``strides`` are the
    texts of `TensorParam` (strides in elements, None for row-major contiguous); ``output``: Python callers
    may leave it out; ``default`` is a scalar's. ``pointer``: an address, which Python callers may give as an
    integer. ``may_overlap``: it may share memory with other parameters of which that is said, too.
    ``begins_anywhere``: on devices, too, at any of its elements, where others begin where vectors do."""

    name: str
    kind: str
    dtype: str
    access: str = "in"
    output: bool = False
    extents: tuple[str, ...] = ()
    strides: tuple[str, ...] | None = None
    default: int | float | bool | None = None
    pointer: bool = False
    may_overlap: bool = False
    begins_anywhere: bool = False

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return self.kind == TENSOR

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
        shape = self.shape(dims)
        return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def evaluate(text: str, dims: Mapping[str, int]) -> int:
    """An extent or stride of a record, such as ``K // 2``, for given dims.

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


@dataclass(frozen=True)
class DimRecord:
    """One dim of the C signature (always int64_t there). ``bits`` is the width that kernels compute it in:
    the runtime refuses values that do not fit, with room for the tile that reaches past a dim's end."""

    name: str
    bits: int = 32

    @property
    def limit(self) -> int:
        """The largest value."""
        return largest_dim(self.bits)


@dataclass(frozen=True)
class Signature:
    """What all variants of a kernel share."""

    params: tuple[ParamRecord, ...]
    dims: tuple[DimRecord, ...]
    doc: str = ""


@dataclass(frozen=True)
class VariantRecord:
    """One compiled variant. ``target`` is a canonical target name; ``guards`` has one entry per restricted
    dim; ``config_source`` says who chose the config ("manifest", "tuned", ...); ``ir_text`` is the printed
    tile IR before lowering; ``align`` demands bytes of alignment of a parameter's base address;
    ``takes_num_sms``: behind the dims its code takes what the library fills in (`tilec.ir.num_sms`);
    ``cost``: of the schedules of a list the least decides (`tilec.package.dispatch.choices`).
    ``listed_under``: of one schedule of a list the guards that all of the list have, None where these are
    ``guards``.
    ``tolerance``: what the manifest says about checking its results on top of the kernel's."""

    target: str
    guards: tuple[tuple[str, Guard], ...]
    image: Image
    config: Mapping[str, object] = field(default_factory=dict)
    config_source: str = "manifest"
    ir_text: str = ""
    source_sha256: str = ""
    align: tuple[tuple[str, int], ...] = ()
    takes_num_sms: bool = False
    cost: str = ""
    listed_under: tuple[tuple[str, Guard], ...] | None = None
    tolerance: Mapping[str, float] = field(default_factory=dict)

    def guard(self, dim: str) -> Guard:
        """The guard of ``dim``; ``Guard()`` where there is none."""
        return dict(self.guards).get(dim, Guard())


@dataclass(frozen=True)
class KernelRecord:
    """One entry of the library; ``variants`` in manifest order. ``tolerance``: what the manifest says about
    checking results, any of rtol, atol, max_mismatch. ``backward``: the kernel of its backward pass, as the
    manifest's table has it, ``layer`` the layer of torch that it computes. ``left_out``: target and guards of
    variants that were planned, and in whose place others run the same code."""

    name: str
    params: tuple[ParamRecord, ...]
    dims: tuple[DimRecord, ...]
    variants: tuple[VariantRecord, ...]
    doc: str = ""
    tolerance: Mapping[str, float] = field(default_factory=dict)
    backward: Mapping[str, Any] | None = None
    layer: Mapping[str, Any] | None = None
    left_out: tuple[tuple[str, tuple[tuple[str, Guard], ...]], ...] = ()


@dataclass(frozen=True)
class PackageSpec:
    """Everything that decides the bytes of a package. ``tools`` names what built it, with versions;
    ``license`` is an SPDX expression, empty where none is told."""

    name: str
    version: str
    host: Host
    kernels: tuple[KernelRecord, ...]
    tools: Mapping[str, str] = field(default_factory=dict)
    license: str = ""


def signature(kernel: Kernel) -> Signature:
    """The signature of one elaborated kernel, as plain data."""
    from tilec.ir.analysis.aliases import named_in
    from tilec.ir.num_sms import callers_dims

    overlapping = named_in(kernel)
    return Signature(
        params=tuple(_param_record(param, overlapping) for param in kernel.params),
        dims=tuple(_dim_record(dim) for dim in callers_dims(kernel)),
        doc=kernel.doc,
    )


def kernel_record(
    name: str,
    variants: Sequence[tuple[Signature, VariantRecord]],
    tolerance: Mapping[str, float] | None = None,
    backward: Mapping[str, Any] | None = None,
    layer: Mapping[str, Any] | None = None,
) -> KernelRecord:
    """The record of a kernel from its variants in manifest order.

    Raises PackageError when there is none, or when two variants disagree about the signature. A dim is as
    wide as the narrowest variant computes it."""
    if not variants:
        raise PackageError(f"kernel {name!r} has no variants", place=Place(key=name))
    signatures = [each for each, _ in variants]
    first = signatures[0]
    for other in signatures[1:]:
        _check_same(name, first, other)
    dims = tuple(
        DimRecord(dim.name, min(each.dims[index].bits for each in signatures))
        for index, dim in enumerate(first.dims)
    )
    records = tuple(record for _, record in variants)
    return KernelRecord(name, first.params, dims, records, first.doc, tolerance or {}, backward, layer)


def _check_same(name: str, first: Signature, other: Signature) -> None:
    dims = [tuple(dim.name for dim in each.dims) for each in (first, other)]
    if first.params == other.params and dims[0] == dims[1]:
        return
    raise PackageError(
        f"variants of kernel {name!r} have different signatures",
        place=Place(key=name),
        why=_difference(first, other, dims),
        remedy="make parameters, dtypes and shapes the same for every config and dim, or split the kernel",
    )


def _difference(first: Signature, other: Signature, dims: Sequence[tuple[str, ...]]) -> str:
    if dims[0] != dims[1]:
        return f"the dims are {', '.join(dims[0])} in one and {', '.join(dims[1])} in another"
    if len(first.params) != len(other.params):
        return f"one takes {counted(len(first.params), 'parameter')}, another {len(other.params)}"
    pairs = zip(first.params, other.params, strict=False)
    return "; ".join(f"{a} in one, {b} in another" for a, b in pairs if a != b)


def _param_record(param: Param, overlapping: frozenset[str]) -> ParamRecord:
    from tilec.ir.nodes import TensorParam

    if isinstance(param, TensorParam):
        return ParamRecord(
            param.name,
            TENSOR,
            str(param.buffer.dtype),
            param.access,
            param.output,
            param.extents,
            param.strides,
            pointer=param.pointer,
            may_overlap=str(param.buffer.name) in overlapping,
        )
    dtype = str(param.var.ty.dtype)
    return ParamRecord(param.name, SCALAR, dtype, default=param.default, pointer=param.pointer)


def _dim_record(dim: Dim) -> DimRecord:
    """A pinned dim is compiled in, so that its width restricts nothing."""
    return DimRecord(dim.name, 64 if dim.var is None or "64" in str(dim.var.ty.dtype) else 32)
