"""The doors of each kernel: C prototypes and definitions of its functions."""

from __future__ import annotations

from collections.abc import Sequence

from tilec.dtypes import DType, lookup
from tilec.package.bindings.binds import bind_dims
from tilec.package.model import DimRecord, KernelRecord, PackageSpec, ParamRecord
from tilec.package.templates import render
from tilec.package.text import escape
from tilec.package.text.c import identifier

#: What C callers hold in types of their own (_Float16, __nv_bfloat16, ...); so do the float8 types.
_VOID_POINTERS = ("int4", "uint4", "float16", "bfloat16")


def symbol(package: str, kernel: str) -> str:
    """The C name of a kernel's typed door."""
    return f"{package}_{kernel}"


def public_symbols(package: str, kernels: Sequence[str]) -> tuple[str, ...]:
    """Every public symbol of a shared library with these kernels, in order."""
    general = [f"{package}_{what}" for what in ("library", "last_error", "check_build")]
    names = [symbol(package, kernel) for kernel in kernels]
    typed = [name + end for name in names for end in ("", "_workspace")]
    return ("tilec_library_query", *general, *typed, *(f"__tvm_ffi_{name}" for name in names))


def free_dims(kernel: KernelRecord) -> tuple[DimRecord, ...]:
    """The dims that are arguments of the typed door: those that are no scalar parameter already."""
    scalars = {param.name for param in kernel.params if not param.is_tensor}
    return tuple(dim for dim in kernel.dims if dim.name not in scalars)


def given_dims(kernel: KernelRecord) -> tuple[str, ...]:
    """The dims that callers give beside tensors with shapes: none, unless no shape shows some dim; then all
    that are no scalar parameter."""
    if all(bind_dims(kernel)):
        return ()
    return tuple(dim.name for dim in free_dims(kernel))


def pointer_type(dtype: DType) -> str:
    """The element type of a tensor argument: C's own type where it has one, else void."""
    small_float = dtype.is_float and dtype.bits <= 8
    return "void" if small_float or dtype.name in _VOID_POINTERS else dtype.c_storage


def parameters(kernel: KernelRecord) -> str:
    """The parameter list of the typed door."""
    dims = [f"int64_t {identifier(dim.name)}" for dim in free_dims(kernel)]
    return ", ".join(["const tilec_exec* exec", *map(_parameter, kernel.params), *dims])


def workspace_parameters(kernel: KernelRecord) -> str:
    """The parameter list of the function that sizes the workspace: every dim."""
    dims = [f"int64_t {identifier(dim.name)}" for dim in kernel.dims]
    return ", ".join(["const tilec_exec* exec", *dims, "size_t* out_bytes"])


def definition(spec: PackageSpec, kernel: KernelRecord, index: int) -> str:
    """The functions of one kernel; ``index`` is its place in the table."""
    values = [f"{{{_member(param)} = {_value(param)}}}" for param in kernel.params]
    dims = [identifier(dim.name) for dim in kernel.dims]
    return render(
        "door.c",
        symbol=symbol(spec.name, kernel.name),
        index=index,
        parameters=parameters(kernel),
        workspace_parameters=workspace_parameters(kernel),
        params=_local("tilec_value", "params", values),
        params_name="params" if values else "NULL",
        dims=_local("int64_t", "dims", dims),
        dims_name="dims" if dims else "NULL",
        outputs=sum(1 << i for i, param in enumerate(kernel.params) if param.output),
        workspace=str(any(variant.image.workspace for variant in kernel.variants)).lower(),
    )


def prototype(spec: PackageSpec, kernel: KernelRecord) -> str:
    """The declarations of one kernel, with a comment on every parameter."""
    return render(
        "prototype.h",
        symbol=symbol(spec.name, kernel.name),
        doc=escape.c_comment(kernel.doc or kernel.name),
        param_docs=param_docs(kernel),
        parameters=parameters(kernel),
        workspace_parameters=workspace_parameters(kernel),
    )


def param_docs(kernel: KernelRecord) -> str:
    """Lines of a C comment that describe the parameters."""
    docs = [f" *   {param.name}: {escape.c_comment(describe(param))}" for param in kernel.params]
    return "\n".join(docs) or " * No parameters."


def _local(kind: str, name: str, values: list[str]) -> str:
    return f"const {kind} {name}[] = {{{', '.join(values)}}};" if values else f"/* no {name} */"


def _parameter(param: ParamRecord) -> str:
    dtype = lookup(param.dtype)
    const = "const " if param.is_tensor and param.access == "in" else ""
    if param.pointer:
        return f"{const}void* {identifier(param.name)}"
    if not param.is_tensor:
        return f"{dtype.c_scalar} {identifier(param.name)}"
    return f"{const}{pointer_type(dtype)}* {identifier(param.name)}"


def _member(param: ParamRecord) -> str:
    if param.is_tensor:
        return ".ptr"
    return ".f" if lookup(param.dtype).is_float else ".i"


def _value(param: ParamRecord) -> str:
    name = identifier(param.name)
    if param.is_tensor:
        return f"(void*){name}"
    if param.pointer:
        return f"(int64_t)(intptr_t){name}"
    return name if lookup(param.dtype).is_float else f"(int64_t){name}"


def describe(param: ParamRecord) -> str:
    """A parameter's dtype, shape, strides and access in words."""
    if not param.is_tensor:
        return "address" if param.pointer else f"{param.dtype} scalar"
    access = {"in": "read", "out": "written", "inout": "read and written"}[param.access]
    layout = f", strides ({', '.join(param.strides)})" if param.strides is not None else ""
    what = "address of " if param.pointer else ""
    overlap = ", may overlap others that may" if param.may_overlap else ""
    return f"{what}{param.dtype}[{', '.join(param.extents)}]{layout}, {access}{overlap}"
