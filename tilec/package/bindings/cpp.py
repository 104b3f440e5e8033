"""The C++17 header ``<name>.hpp``: functions over tensor views, through the generic door."""

from __future__ import annotations

from collections.abc import Iterable

from tilec.dtypes import lookup
from tilec.package.bindings import doors
from tilec.package.model import KernelRecord, PackageSpec, ParamRecord
from tilec.package.templates import render
from tilec.package.text import escape
from tilec.package.text.c import identifier

_NOTHROW = "::std::nothrow"


def cpp_header_source(spec: PackageSpec) -> str:
    """The C++ header of a library; ``spec`` has its kernels sorted by name."""
    return render(
        "header.hpp",
        name=spec.name,
        namespace=identifier(spec.name),
        guard=spec.name.upper(),
        version=escape.c_comment(spec.version),
        kernels="".join(_functions(spec, kernel) for kernel in spec.kernels).rstrip("\n"),
    )


def _functions(spec: PackageSpec, kernel: KernelRecord) -> str:
    """Both forms of a kernel and of the size of its workspace."""
    dims = [dim.name for dim in kernel.dims]
    given = doors.given_dims(kernel)
    parameters = [*map(_parameter, kernel.params), *map(_dim, given)]
    names = [*(param.name for param in kernel.params), *given]
    function = identifier(kernel.name)
    namespace = identifier(spec.name)
    return render(
        "kernel.hpp",
        package=spec.name,
        kernel=kernel.name,
        symbol=doors.symbol(spec.name, kernel.name),
        function=function,
        qualified=f"::{namespace}::{function}",
        workspace=f"{kernel.name}_workspace",
        qualified_workspace=f"::{namespace}::{kernel.name}_workspace",
        doc=escape.c_comment(kernel.doc or kernel.name),
        param_docs=doors.param_docs(kernel),
        parameters=_before(parameters),
        nothrow_parameters=_before(["::std::nothrow_t", *parameters]),
        names=_before([_NOTHROW, *map(identifier, names)]),
        arguments="".join(f",\n      {each}" for each in _arguments(kernel, given)),
        dims=_before(map(_dim, dims)),
        nothrow_dims=_before(["::std::nothrow_t", *map(_dim, dims)]),
        dim_names=_before(map(identifier, dims)),
        dim_pass=_before([_NOTHROW, *map(identifier, dims)]),
    )


def _before(items: Iterable[str]) -> str:
    """``items`` in front of a last one."""
    return "".join(f"{item}, " for item in items)


def _parameter(param: ParamRecord) -> str:
    dtype = lookup(param.dtype)
    if not param.is_tensor:
        return f"{dtype.c_scalar} {identifier(param.name)}"
    const = "const " if param.access == "in" else ""
    element = f"{const}{doors.pointer_type(dtype)}"
    return f"::tilec::tensor<{element}, {len(param.extents)}> {identifier(param.name)}"


def _dim(name: str) -> str:
    return f"::std::int64_t {identifier(name)}"


def _arguments(kernel: KernelRecord, given: tuple[str, ...]) -> list[str]:
    """What the generic door gets: the parameters, and every dim if the caller gives any."""
    dims = [dim.name for dim in kernel.dims] if given else []
    return [*map(_argument, kernel.params), *map(_scalar, dims)]


def _argument(param: ParamRecord) -> str:
    if not param.is_tensor:
        return _scalar(param.name)
    dtype = lookup(param.dtype)
    view = f"{identifier(param.name)}, ::DLDataType{{{dtype.dlpack}, {dtype.bits}, 1}}, exec"
    return f"::tilec::detail::tensor_argument({view})"


def _scalar(name: str) -> str:
    return f"::tilec::detail::scalar_argument({identifier(name)})"
