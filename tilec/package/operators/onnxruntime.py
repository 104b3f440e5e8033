"""Operators of ONNX Runtime: ``lib<name>_onnxruntime`` beside a package's library
(runtime_c/operators/onnxruntime.c)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilec.capacity import CAPACITY
from tilec.errors import PackageError
from tilec.families import host_family
from tilec.package.family import family_of_variant
from tilec.package.model import KernelRecord, PackageSpec, ParamRecord
from tilec.package.operators.library import for_each_host, inputs, link_operators, prefix, table, tables
from tilec.package.places import Place
from tilec.package.templates import render
from tilec.package.text.c import array, record, reference

if TYPE_CHECKING:
    from tilec.package.write import BuildReport

#: Element types by their numbers in ONNX (`TensorProto.DataType` of onnx.proto).
_ONNX_TYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "bfloat16": 16,
    "float8_e4m3fn": 17,
    "float8_e5m2": 19,
}
_ENTRY = "RegisterCustomOps"


def operators(spec: PackageSpec) -> tuple[KernelRecord, ...]:
    """The kernels that are operators: those with code for CPUs whose element types ONNX has."""
    return tuple(kernel for kernel in spec.kernels if _is_expressible(kernel))


def write_operators(specs: Sequence[PackageSpec], reports: Sequence[BuildReport]) -> tuple[Path, ...]:
    """Writes the operators' library of each host beside the written library, and returns their paths. Raises
    PackageError where no kernel is an operator, or a library cannot be written."""
    return for_each_host(_write, specs, reports)


def _is_expressible(kernel: KernelRecord) -> bool:
    types = {param.dtype for param in kernel.params if param.is_tensor}
    return types <= _ONNX_TYPES.keys() and any(
        family_of_variant(variant) is host_family() for variant in kernel.variants
    )


def _write(spec: PackageSpec, place: Place, report: BuildReport) -> Path:
    if not operators(spec):
        raise PackageError(
            f"{spec.name} has no kernel that ONNX Runtime can call",
            why="its operators run on CPUs, on tensors of element types that ONNX has",
            remedy="add a CPU to [targets], or build without --onnxruntime",
        )
    return link_operators(
        place, report, _source(spec, report.build_id), f"{spec.name}_onnxruntime", exports=(_ENTRY,)
    )


def _source(spec: PackageSpec, build_id: str) -> str:
    kernels = operators(spec)
    return render(
        "onnxruntime.c",
        name=spec.name,
        tables=tables(spec, build_id, kernels, MAX_WORKERS=CAPACITY.max_workers),
        types="".join(_types(prefix(at), kernel) for at, kernel in enumerate(kernels)),
        ops="".join(f"    {_op(at, kernel)},\n" for at, kernel in enumerate(kernels)),
    )


def _types(name: str, kernel: KernelRecord) -> str:
    """The element types of what comes in and of what goes out."""
    found = array("int", f"{name}_inputs", _numbers(inputs(kernel)))
    return found + array("int", f"{name}_outputs", _numbers(_outputs(kernel)))


def _op(at: int, kernel: KernelRecord) -> str:
    return record(
        table=table(at, kernel),
        input_types=reference(f"{prefix(at)}_inputs", inputs(kernel)),
        output_types=reference(f"{prefix(at)}_outputs", _outputs(kernel)),
        num_inputs=len(inputs(kernel)),
        num_outputs=len(_outputs(kernel)),
    )


def _outputs(kernel: KernelRecord) -> list[ParamRecord]:
    """What goes out; a tensor that is read and written comes in, too."""
    return [param for param in kernel.params if param.is_written]


def _numbers(params: Iterable[ParamRecord]) -> list[str]:
    return [str(_ONNX_TYPES[param.dtype]) for param in params]
