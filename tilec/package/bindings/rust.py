"""The Rust crate ``rust/<name>-sys``: raw bindings, and a function over slices per kernel."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tilec.dtypes import DType, lookup
from tilec.package.bindings import doors
from tilec.package.library.runtime import runtime_folder
from tilec.package.model import KernelRecord, PackageSpec, ParamRecord
from tilec.package.places import Place
from tilec.package.templates import render
from tilec.package.text.c import identifier
from tilec.package.text.escape import rust_doc, toml_string
from tilec.package.text.rust_sizes import to_rust

#: Words of Rust that C leaves free, and the names that generated functions use themselves. Some may not even
#: be raw identifiers, so that all of them get an underscore.
_RESERVED = frozenset(
    """Self abstract as async await become box crate dyn final fn gen impl in let loop macro match mod move
    mut override priv pub ref self super trait type unsafe unsized use where yield
    how bytes ok device float int Error""".split()
)

_TYPES = {"float": "f32", "double": "f64", "bool": "bool"} | {
    f"{sign}int{bits}_t": f"{'u' if sign else 'i'}{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
_SEMANTIC = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}")
_STATUS = re.compile(r"^  (TILEC_OK|TILEC_ERR_\w+) = (\d+)", re.MULTILINE)


def crate_files(spec: PackageSpec, build_id: str, places: Sequence[Place]) -> dict[str, str]:
    """The texts of the crate by their paths in the package; ``spec`` has its kernels sorted by name."""
    values = {
        "name": spec.name,
        "upper": spec.name.upper(),
        "build_id": build_id,
    }
    functions_by_kernel = _distinct([kernel.name for kernel in spec.kernels])
    named = [(functions_by_kernel[kernel.name], kernel) for kernel in spec.kernels]
    kernels = "".join(_wrapper(spec, kernel, name) for name, kernel in named)
    views = "".join(_view_function(spec, kernel, name, index) for index, (name, kernel) in enumerate(named))
    selects, explains = (
        "".join(_question(template, kernel, name, index) for index, (name, kernel) in enumerate(named))
        for template in ("rust_select_kernel.rs", "rust_explain_kernel.rs")
    )
    functions = "".join(_declarations(spec, kernel) for kernel in spec.kernels)
    description = toml_string(f"tile kernels built by tilec, version {spec.version}")
    texts = {
        "Cargo.toml": render(
            "rust_Cargo.toml", version=_cargo_version(spec.version), description=description, **values
        ),
        "build.rs": render("rust_build.rs", hosts="".join(map(_host, places)), **values),
        "src/exec.rs": render("rust_exec.rs", **values),
        "src/ffi.rs": render("rust_ffi.rs", statuses=_statuses(), functions=functions, **values),
        "src/lib.rs": render(
            "rust_lib.rs",
            version=rust_doc(spec.version),
            kernels=kernels,
            views=views,
            selects=selects,
            explains=explains,
            **values,
        ),
        "src/sizes.rs": render("rust_sizes.rs"),
        "src/threads.rs": render("rust_threads.rs"),
        "src/view.rs": render("rust_view.rs", **values),
        "tests/library.rs": render("rust_test.rs", **values),
    }
    return {f"rust/{spec.name}-sys/{path}": text for path, text in texts.items()}


def _cargo_version(version: str) -> str:
    """Cargo takes semantic versions alone; a library's may be one of Python."""
    return version if _SEMANTIC.fullmatch(version) else "0.0.0"


def _statuses() -> str:
    """The statuses of tilec.h, so that their numbers are written once."""
    header = (runtime_folder() / "include" / "tilec" / "tilec.h").read_text(encoding="utf-8")
    return "\n".join(f"pub const {name}: tilec_status = {value};" for name, value in _STATUS.findall(header))


# ---- one kernel ----


def _names(kernel: KernelRecord) -> dict[str, str]:
    """The Rust names of a kernel's parameters and dims, each its own."""
    return _distinct([*(param.name for param in kernel.params), *(dim.name for dim in kernel.dims)])


def _distinct(names: Sequence[str]) -> dict[str, str]:
    """Each name as it is, or with underscores behind it where it is a word of Rust or of the crate: as many
    as make it nobody else's."""
    chosen = {name: name for name in names if identifier(name) == name and name not in _RESERVED}
    for name in names:
        made = f"{name}_"
        while name not in chosen and made in chosen.values():
            made += "_"
        chosen.setdefault(name, made)
    return chosen


def _declarations(spec: PackageSpec, kernel: KernelRecord) -> str:
    symbol, names = doors.symbol(spec.name, kernel.name), _names(kernel)
    params = [f"{names[param.name]}: {_raw_type(param)}" for param in kernel.params]
    params += [f"{names[dim.name]}: i64" for dim in doors.free_dims(kernel)]
    sizes = [f"{names[dim.name]}: i64" for dim in kernel.dims]
    head = "exec: *const tilec_exec"
    return (
        f"    #[allow(non_snake_case)]\n    pub fn {symbol}({_list(head, *params)}) -> tilec_status;\n"
        f"    #[allow(non_snake_case)]\n    pub fn {symbol}_workspace("
        f"{_list(head, *sizes, 'out_bytes: *mut usize')}) -> tilec_status;\n"
    )


def _host(place: Place) -> str:
    """What build.rs knows of one host."""
    names = [place.library, *place.beside]
    return (
        f'    Host {{\n        arch: "{place.host.arch}",\n        system: "{place.host.system.name}",\n'
        f'        folder: "{place.folder.removeprefix("lib").removeprefix("/")}",\n'
        f"        shared: &[{_texts(name.rpartition('/')[2] for name in names)}],\n"
        f'        archive: "{place.archive.rpartition("/")[2]}",\n'
        f"        needs: &[{_texts(place.host.system.libraries)}],\n    }},\n"
    )


def _texts(texts: Iterable[str]) -> str:
    return ", ".join(f'"{text}"' for text in texts)


def _wrapper(spec: PackageSpec, kernel: KernelRecord, function: str) -> str:
    """The safe function of one kernel: every slice is measured, then the typed door is called."""
    names = _names(kernel)
    tensors = [param for param in kernel.params if param.is_tensor]
    dims = [names[dim.name] for dim in doors.free_dims(kernel)]
    params = [f"{names[param.name]}: {_safe_type(param)}" for param in kernel.params]
    values = _values(kernel, names)
    return render(
        "rust_kernel.rs",
        doc=rust_doc(kernel.doc) or kernel.name,
        param_docs=_param_docs(kernel, "///"),
        function=function,
        parameters=_list("exec: &mut Exec", *params, *(f"{dim}: i64" for dim in dims)),
        checks="\n".join(f"    {_check(param, names, values)}" for param in tensors) or "    let _ = ok;",
        symbol=doors.symbol(spec.name, kernel.name),
        arguments=_list("how", *(_argument(param, names) for param in kernel.params), *dims),
        workspace_arguments=_list("how", *(values[dim.name] for dim in kernel.dims), "bytes"),
    )


def _values(kernel: KernelRecord, names: Mapping[str, str]) -> dict[str, str]:
    """What extents may name, as Rust expressions of type i64: the dims and the scalar parameters."""
    dims = {dim.name: names[dim.name] for dim in kernel.dims}
    scalars = [param for param in kernel.params if not param.is_tensor]
    return dims | {param.name: f"({names[param.name]} as i64)" for param in scalars}


def _check(param: ParamRecord, names: Mapping[str, str], values: dict[str, str]) -> str:
    """The statement that returns an error unless the slice of ``param`` is long enough, and unless elements
    that are written have places of their own."""
    name = names[param.name]
    dtype = lookup(param.dtype)
    length = f"{name}.len()" if dtype.bits >= 8 else f"{name}.len().saturating_mul({8 // dtype.bits})"
    extents = _list(*(to_rust(text, values) for text in param.extents))
    given = f'&ok, "{param.name}", {length}, &[{extents}]'
    if param.strides is None:
        return f"check_dense({given})?;"
    strides = _list(*(to_rust(text, values) for text in param.strides))
    checks = f"check_strided({given}, &[{strides}])?;"
    if param.access == "in":
        return checks
    return f'{checks}\n    check_distinct("{param.name}", &[{extents}], &[{strides}])?;'


def _argument(param: ParamRecord, names: Mapping[str, str]) -> str:
    name = names[param.name]
    if not param.is_tensor:
        return name
    return f"{name}.as_ptr()" if param.access == "in" else f"{name}.as_mut_ptr()"


def _view_function(spec: PackageSpec, kernel: KernelRecord, function: str, index: int) -> str:
    """The function of one kernel over views, through the generic door, and the size of its workspace.
    ``index`` is the kernel's place in the library."""
    names = _names(kernel)
    given = doors.given_dims(kernel)
    params = [f"{names[param.name]}: {_view_type(param)}" for param in kernel.params]
    sizes = [names[dim.name] for dim in kernel.dims]
    values = _values(kernel, names)
    arguments = [_view_argument(param, names[param.name]) for param in kernel.params]
    if given:
        arguments += [f"int({values[dim.name]})" for dim in kernel.dims]
    return render(
        "rust_views_kernel.rs",
        doc=rust_doc(kernel.doc) or kernel.name,
        param_docs=_param_docs(kernel, "    ///"),
        function=function,
        workspace=f"{kernel.name}_workspace",
        parameters=_list("device: &Device", *params, *(f"{names[dim]}: i64" for dim in given)),
        tensors="\n".join(
            f"        let mut {names[param.name]} = {names[param.name]}.tensor(device, {_dlpack(param)});"
            for param in kernel.params
            if param.is_tensor
        ),
        index=index,
        arguments=_list(*arguments),
        symbol=doors.symbol(spec.name, kernel.name),
        workspace_parameters=_list("device: &Device", *(f"{size}: i64" for size in sizes)),
        workspace_arguments=_list("how", *sizes, "bytes"),
    )


def _question(template: str, kernel: KernelRecord, function: str, index: int) -> str:
    """A function about one kernel, the library's ``index``-th, for dims on a device."""
    names = _names(kernel)
    sizes = [names[dim.name] for dim in kernel.dims]
    return render(
        template,
        kernel=kernel.name,
        function=function,
        parameters=_list("device: &Device", *(f"{size}: i64" for size in sizes)),
        index=index,
        sizes=_list(*sizes),
    )


def _view_type(param: ParamRecord) -> str:
    return "View<'_>" if param.is_tensor else _raw_type(param)


def _view_argument(param: ParamRecord, name: str) -> str:
    if param.is_tensor:
        return f"{name}.arg()"
    return f"float({name} as f64)" if lookup(param.dtype).is_float else f"int({name} as i64)"


def _dlpack(param: ParamRecord) -> str:
    dtype = lookup(param.dtype)
    return f"({dtype.dlpack}, {dtype.bits})"


# ---- texts ----


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


def _param_docs(kernel: KernelRecord, lead: str) -> str:
    docs = [f"{lead} * `{param.name}`: {rust_doc(doors.describe(param))}" for param in kernel.params]
    return "\n".join(docs) or f"{lead} No parameters."


def _list(*items: str) -> str:
    return ", ".join(items)
