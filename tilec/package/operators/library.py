"""A library of operators for a framework, which calls a package's own one by the generic door: the tables of
kernels (runtime_c/operators/operators.h), and how it is linked."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilec.codegen.linkers import SharedLibrary
from tilec.codegen.toolchain import find_toolchain
from tilec.package.bindings.binds import CONSTANT, SCALAR, SHAPE, STRIDE, Bind, bind_dims
from tilec.package.install import scratch_folder
from tilec.package.library.runtime import compile_c, runtime_folder
from tilec.package.model import KernelRecord, PackageSpec, ParamRecord
from tilec.package.places import Place, places
from tilec.package.templates import render
from tilec.package.text.c import array, constants, record, reference, row
from tilec.package.text.c_sizes import to_c
from tilec.package.text.escape import c_string

if TYPE_CHECKING:
    from tilec.package.write import BuildReport

_SOURCES = {SHAPE: "DIM_SHAPE", STRIDE: "DIM_STRIDE", SCALAR: "DIM_SCALAR", CONSTANT: "DIM_CONSTANT"}


def for_each_host(
    write: Callable[[PackageSpec, Place, BuildReport], Path],
    specs: Sequence[PackageSpec],
    reports: Sequence[BuildReport],
) -> tuple[Path, ...]:
    """What ``write`` made beside the library of each host."""
    return tuple(write(*each) for each in zip(specs, places(specs), reports, strict=True))


def link_operators(
    place: Place,
    report: BuildReport,
    text: str,
    name: str,
    *,
    exports: Sequence[str],
    flags: Sequence[str] = (),
) -> Path:
    """Compiles ``text``, which includes what `tables` wrote, and links it with the library of ``place`` to
    ``lib<name>`` in the same folder. Raises CompileError, PackageError."""
    toolchain = find_toolchain(place.host)
    target = report.library.with_name(place.host.system.library.format(name=name))
    with scratch_folder(report.out_dir) as folder:
        source = folder / f"{name}.c"
        source.write_text(text, encoding="utf-8")
        include = f"-I{runtime_folder() / 'operators'}"
        made = compile_c(toolchain, source, folder / "made", (include, *flags))
        needs = (report.out_dir / place.linked,)
        library = SharedLibrary(folder / target.name, target.name, exports, needs)
        toolchain.link_shared([made], library)
        os.replace(library.path, target)
    return target


def tables(spec: PackageSpec, build_id: str, kernels: Sequence[KernelRecord], **numbers: int) -> str:
    """The C in front of a framework's, which calls the library of that build alone: an `op_table` initialiser
    is `table` for each of ``kernels``, by its place. ``numbers`` are constants beside."""
    tensors = [param for kernel in kernels for param in kernel.params if param.is_tensor]
    return render(
        "operators.c",
        name=spec.name,
        build_id=build_id,
        constants=constants(
            {
                "MOST_PARAMS": max(len(kernel.params) for kernel in kernels),
                "MOST_DIMS": max(1, *(len(kernel.dims) for kernel in kernels)),
                "MOST_AXES": max(1, *(len(param.extents) for param in tensors)),
                **numbers,
            }
        ),
        kernels="\n".join(_tables(prefix(at), kernel) for at, kernel in enumerate(kernels)),
    )


def prefix(at: int) -> str:
    """What names of the tables of a kernel begin with."""
    return f"op_{at}"


def table(at: int, kernel: KernelRecord) -> str:
    """The `op_table` of a kernel: an initialiser."""
    return record(
        name=c_string(kernel.name),
        params=f"{prefix(at)}_params",
        dims=reference(f"{prefix(at)}_dims", kernel.dims),
        output_extents=f"{prefix(at)}_extents",
    )


def inputs(kernel: KernelRecord) -> list[ParamRecord]:
    """The tensors that a caller gives."""
    return [param for param in kernel.params if param.is_tensor and not param.output]


def _tables(name: str, kernel: KernelRecord) -> str:
    params = array("op_param", f"{name}_params", map(_param, kernel.params))
    dims = array("op_dim", f"{name}_dims", map(_dim, _binds(kernel)))
    return params + dims + _extents(name, kernel)


def _param(param: ParamRecord) -> str:
    if param.is_tensor:
        return record(is_input=str(not param.output).lower())
    if param.default is None:
        return record(has_default="false")
    return record(has_default="true", int_default=_int(param.default), float_default=_float(param.default))


def _int(value: float) -> str:
    return f"INT64_C({int(value)})" if math.isfinite(value) else "0"


def _float(value: float) -> str:
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return float(value).hex()


def _binds(kernel: KernelRecord) -> list[Bind | None]:
    """Where each dim is read, the first place that is a constant or no output; None where callers say it."""

    def is_given(bind: Bind) -> bool:
        return bind.source == CONSTANT or not kernel.params[bind.param].output

    return [next(filter(is_given, binds), None) for binds in bind_dims(kernel)]


def _dim(bind: Bind | None) -> str:
    if bind is None:
        return record(source="DIM_GIVEN")
    return row(_SOURCES[bind.source], bind.param, bind.axis, bind.mul, bind.add, bind.div)


def _extents(name: str, kernel: KernelRecord) -> str:
    """The function of the extents of what callers leave out."""
    dims = {dim.name: f"dims[{at}]" for at, dim in enumerate(kernel.dims)}
    scalars = {each.name: f"args[{at}].v.i" for at, each in enumerate(kernel.params) if not each.is_tensor}
    lines = "".join(
        f"  extents[{at}][{axis}] = {to_c(text, scalars | dims)};\n"
        for at, param in enumerate(kernel.params)
        if param.output
        for axis, text in enumerate(param.extents)
    )
    head = "const int64_t* dims, const tilec_arg* args, int64_t (*extents)[MOST_AXES]"
    return (
        f"static bool {name}_extents({head}) {{\n"
        f"  bool ok = true;\n  (void)dims;\n  (void)args;\n  (void)extents;\n{lines}  return ok;\n}}\n"
    )
