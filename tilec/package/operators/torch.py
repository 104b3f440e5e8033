"""Operators of torch without Python: ``lib<name>_torch`` beside a package's library
(runtime_c/operators/torch.c)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilec.dtypes import lookup
from tilec.errors import PackageError
from tilec.package.family import family_of_variant
from tilec.package.model import KernelRecord, PackageSpec, ParamRecord
from tilec.package.operators.library import for_each_host, link_operators, prefix, table, tables
from tilec.package.places import Place
from tilec.package.templates import render
from tilec.package.text.c import array, constants, record
from tilec.package.text.escape import c_string
from tilec.portable.operands import Operands
from tilec.portable.torch_schema import schema

if TYPE_CHECKING:
    from tilec.package.write import BuildReport

#: Element types that torch's stable ABI names, as it does.
_DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"),
)
#: By the constants of dlpack.h, how torch's dispatcher calls devices.
_DEVICES = {"kDLCPU": "on_cpu", "kDLCUDA": "on_cuda"}
_STACK = "uint64_t* stack, uint64_t num_inputs, uint64_t num_outputs"


def torch_kernels(spec: PackageSpec) -> tuple[KernelRecord, ...]:
    """The kernels that are operators: those with code for CPUs or CUDA whose element types the ABI names."""
    return tuple(kernel for kernel in spec.kernels if _types(kernel) <= set(_DTYPES) and _devices(kernel))


def write_torch_operators(specs: Sequence[PackageSpec], reports: Sequence[BuildReport]) -> tuple[Path, ...]:
    """Writes the operators' library of each host beside the written library, and returns their paths. Raises
    PackageError where no kernel is an operator, or a library cannot be written."""
    return for_each_host(_write, specs, reports)


def _types(kernel: KernelRecord) -> set[str]:
    return {lookup(param.dtype).name for param in kernel.params if param.is_tensor}


def _devices(kernel: KernelRecord) -> dict[str, str]:
    found = {family_of_variant(variant).device_type for variant in kernel.variants}
    return {member: "true" for device, member in _DEVICES.items() if device in found}


def _write(spec: PackageSpec, place: Place, report: BuildReport) -> Path:
    if not torch_kernels(spec):
        raise PackageError(
            f"{spec.name} has no kernel that torch can call",
            why="its operators run on CPUs and NVIDIA GPUs, on element types that torch's C ABI names",
            remedy="add such a target to [targets], or build without --torch",
        )
    text = _source(spec, report.metadata)
    flags = ("-fexceptions",)  # torch throws through frames of C
    return link_operators(
        place,
        report,
        text,
        f"{spec.name}_torch",
        exports=(f"{spec.name}_register_torch_operators",),
        flags=flags,
    )


def _source(spec: PackageSpec, metadata: Mapping[str, Any]) -> str:
    kernels = torch_kernels(spec)
    told = {each["name"]: each for each in metadata["kernels"]}
    numbered = list(enumerate(kernels))
    return render(
        "torch.c",
        name=spec.name,
        tables=tables(spec, metadata["build_id"], kernels),
        stack=_STACK,
        dtypes=constants({f"DTYPE_{name.upper()}": at for at, name in enumerate(_DTYPES)})
        + constants({"NUM_DTYPES": len(_DTYPES)})
        + array("char* const", "torch_dtype_names", map(c_string, _DTYPES)),
        functions="".join(
            f"static void {prefix(at)}_run({_STACK});\n"
            + array("int", f"{prefix(at)}_dtypes", (_dtype(param) for param in kernel.params))
            for at, kernel in numbered
        ),
        ops="".join(f"    {_op(at, kernel, told[kernel.name])},\n" for at, kernel in numbered),
        runs="".join(
            f"static void {prefix(at)}_run({_STACK}) {{\n"
            f"  (void)num_inputs;\n  (void)num_outputs;\n  torch_call(&torch_ops[{at}], stack);\n}}\n"
            for at, _ in numbered
        ),
    )


def _dtype(param: ParamRecord) -> str:
    return f"DTYPE_{lookup(param.dtype).name.upper()}" if param.is_tensor else "-1"


def _op(at: int, kernel: KernelRecord, metadata: Mapping[str, Any]) -> str:
    return record(
        table=table(at, kernel),
        schema=c_string(kernel.name + schema(Operands(metadata))),
        dtypes=f"{prefix(at)}_dtypes",
        run=f"{prefix(at)}_run",
        **_devices(kernel),
    )
