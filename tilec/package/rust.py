"""The Rust crate ``rust/<name>-sys``: raw bindings, and a function over slices per kernel."""

from __future__ import annotations

import json
import re

from tilec.dtypes import DType, lookup
from tilec.package import doors
from tilec.package.ctext import identifier
from tilec.package.link import runtime_folder, soname
from tilec.package.metadata import ABI_VERSION
from tilec.package.model import KernelRecord, PackageSpec, ParamRecord
from tilec.package.rustexpr import to_rust
from tilec.package.templates import render

#: Words of Rust that C leaves free, and the names that generated functions use themselves. Some may not even
#: be raw identifiers, so that all of them get an underscore.
_RESERVED = frozenset(
    """Self abstract as async await become box crate dyn final fn gen impl in let loop macro match mod move
    mut override priv pub ref self super trait type unsafe unsized use where yield
    how bytes ok""".split()
)

_TYPES = {"float": "f32", "double": "f64", "bool": "bool"} | {
    f"{sign}int{bits}_t": f"{'u' if sign else 'i'}{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
_SEMANTIC = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}")
_STATUS = re.compile(r"^  (TILEC_OK|TILEC_ERR_\w+) = (\d+)", re.MULTILINE)


def crate_files(spec: PackageSpec, build_id: str) -> dict[str, str]:
    """The texts of the crate by their paths in the package; ``spec`` has its kernels sorted by name."""
    values = {
        "name": spec.name,
        "upper": spec.name.upper(),
        "build_id": build_id,
        "soname": soname(spec.name, ABI_VERSION),
    }
    kernels = "".join(_wrapper(spec, kernel) for kernel in spec.kernels)
    functions = "".join(_declarations(spec, kernel) for kernel in spec.kernels)
    description = json.dumps(f"tile kernels built by tilec, version {spec.version}", ensure_ascii=False)
    texts = {
        "Cargo.toml": render(
            "rust_Cargo.toml", version=_cargo_version(spec.version), description=description, **values
        ),
        "build.rs": render("rust_build.rs", **values),
        "src/exec.rs": render("rust_exec.rs", **values),
        "src/ffi.rs": render("rust_ffi.rs", statuses=_statuses(), functions=functions, **values),
        "src/lib.rs": render("rust_lib.rs", version=_line(spec.version), kernels=kernels, **values),
        "src/sizes.rs": render("rust_sizes.rs"),
        "tests/library.rs": render("rust_test.rs", **values),
    }
    return {f"rust/{spec.name}-sys/{path}": text for path, text in texts.items()}


def _cargo_version(version: str) -> str:
    """Cargo takes semantic versions alone; a library's version is free text."""
    return version if _SEMANTIC.fullmatch(version) else "0.0.0"


def _statuses() -> str:
    """The statuses of tilec.h, so that their numbers are written once."""
    header = (runtime_folder() / "include" / "tilec" / "tilec.h").read_text(encoding="utf-8")
    return "\n".join(f"pub const {name}: tilec_status = {value};" for name, value in _STATUS.findall(header))


# ---- one kernel ----


def _declarations(spec: PackageSpec, kernel: KernelRecord) -> str:
    symbol = doors.symbol(spec.name, kernel.name)
    params = [f"{_name(param.name)}: {_raw_type(param)}" for param in kernel.params]
    params += [f"{_name(dim.name)}: i64" for dim in doors.free_dims(kernel)]
    sizes = [f"{_name(dim.name)}: i64" for dim in kernel.dims]
    head = "exec: *const tilec_exec"
    return (
        f"    #[allow(non_snake_case)]\n    pub fn {symbol}({_list(head, *params)}) -> tilec_status;\n"
        f"    #[allow(non_snake_case)]\n    pub fn {symbol}_workspace("
        f"{_list(head, *sizes, 'out_bytes: *mut usize')}) -> tilec_status;\n"
    )


def _wrapper(spec: PackageSpec, kernel: KernelRecord) -> str:
    """The safe function of one kernel: every slice is measured, then the typed door is called."""
    tensors = [param for param in kernel.params if param.is_tensor]
    dims = [_name(dim.name) for dim in doors.free_dims(kernel)]
    params = [f"{_name(param.name)}: {_safe_type(param)}" for param in kernel.params]
    values = _values(kernel)
    return render(
        "rust_kernel.rs",
        doc=_line(kernel.doc) or kernel.name,
        param_docs="\n".join(
            f"/// * `{param.name}`: {_line(doors.describe(param))}" for param in kernel.params
        )
        or "/// No parameters.",
        function=_name(kernel.name),
        parameters=_list("exec: &mut Exec", *params, *(f"{dim}: i64" for dim in dims)),
        checks="\n".join(f"    {_check(param, values)}" for param in tensors) or "    let _ = ok;",
        symbol=doors.symbol(spec.name, kernel.name),
        arguments=_list("how", *map(_argument, kernel.params), *dims),
        workspace_arguments=_list("how", *(values[dim.name] for dim in kernel.dims), "bytes"),
    )


def _values(kernel: KernelRecord) -> dict[str, str]:
    """What extents may name, as Rust expressions of type i64: the dims and the scalar parameters."""
    dims = {dim.name: _name(dim.name) for dim in kernel.dims}
    scalars = [param for param in kernel.params if not param.is_tensor]
    return dims | {param.name: f"({_name(param.name)} as i64)" for param in scalars}


def _check(param: ParamRecord, values: dict[str, str]) -> str:
    """The statement that returns an error unless the slice of ``param`` is long enough."""
    name = _name(param.name)
    dtype = lookup(param.dtype)
    length = f"{name}.len()" if dtype.bits >= 8 else f"{name}.len().saturating_mul({8 // dtype.bits})"
    extents = _list(*(to_rust(text, values) for text in param.extents))
    given = f'&ok, "{param.name}", {length}, &[{extents}]'
    if param.strides is None:
        return f"check_dense({given})?;"
    strides = _list(*(to_rust(text, values) for text in param.strides))
    return f"check_strided({given}, &[{strides}])?;"


def _argument(param: ParamRecord) -> str:
    name = _name(param.name)
    if not param.is_tensor:
        return name
    return f"{name}.as_ptr()" if param.access == "in" else f"{name}.as_mut_ptr()"


# ---- texts ----


def _name(name: str) -> str:
    return f"{name}_" if name in _RESERVED else identifier(name)


def _element(dtype: DType) -> str:
    return _TYPES[dtype.c_storage]


def _raw_type(param: ParamRecord) -> str:
    dtype = lookup(param.dtype)
    if not param.is_tensor:
        return _TYPES[dtype.c_scalar]
    return f"*{'const' if param.access == 'in' else 'mut'} {_element(dtype)}"


def _safe_type(param: ParamRecord) -> str:
    if not param.is_tensor:
        return _raw_type(param)
    return f"&{'' if param.access == 'in' else 'mut '}[{_element(lookup(param.dtype))}]"


def _param_doc(param: ParamRecord) -> str:
    return f"/// * `{param.name}`: {_line(doors.describe(param))}"


def _line(text: str) -> str:
    """One line of a doc comment; brackets are no links, angles no tags."""
    return re.sub(r"[\[\]<>]", r"\\\g<0>", " ".join(text.split()))


def _list(*items: str) -> str:
    return ", ".join(items)
