"""The constant data of one kernel: parameters, dims, variants, dispatch tables."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tilec.codegen.image import LaunchCode
from tilec.dtypes import lookup
from tilec.ir.guards import Guard
from tilec.package import pinned
from tilec.package.binds import Bind, bind_dims
from tilec.package.ctext import array, reference, string_literal
from tilec.package.model import KernelRecord, ParamRecord, VariantRecord
from tilec.package.templates import render
from tilec.package.texts import TextFunctions

_ACCESS = {"in": "TILEC_IN", "out": "TILEC_OUT", "inout": "TILEC_INOUT"}


class KernelTable:
    """Writes one kernel. ``texts`` is shared by the library; every array is named ``k<index>_<what>``."""

    def __init__(self, kernel: KernelRecord, index: int, targets: Sequence[str], texts: TextFunctions) -> None:
        self.kernel = kernel
        self.index = index
        self.targets = targets
        self.texts = texts
        self.dim_values = {dim.name: f"dims[{i}]" for i, dim in enumerate(kernel.dims)}
        scalars = {p.name: f"params[{i}].i" for i, p in enumerate(kernel.params) if not p.is_tensor}
        self.values = {**scalars, **self.dim_values}

    def row(self) -> str:
        """This kernel's kernel_record."""
        kernel = self.kernel
        counts = f"{len(kernel.params)}, {len(kernel.dims)}, {len(kernel.variants)}"
        lists = [
            reference(self._name("param_list"), kernel.params),
            reference(self._name("dim_names"), kernel.dims),
            self._name("variant_list"),
        ]
        info = (
            f"{{sizeof(tilec_kernel), {counts}, {string_literal(kernel.name)}, {string_literal(kernel.doc)}, "
            f"{', '.join(lists)}}}"
        )
        parts = [
            self._name("variants"),
            reference(self._name("params"), kernel.params),
            reference(self._name("dims"), kernel.dims),
            self._name("tables"),
            self._extents_function(),
        ]
        return f"{{{info}, {', '.join(parts)}}}"

    def source(self, first_id: int) -> str:
        """All arrays of this kernel; its variants are numbered from ``first_id``."""
        parts = [self._params(), self._dims(), self._invokers(), self._variants(first_id), self._dispatch()]
        return render("kernel.c", kernel=self.kernel.name, arrays="".join(parts))

    def _name(self, what: str) -> str:
        return f"k{self.index}_{what}"

    # ---- parameters and dims ----

    def _extents_function(self) -> str:
        """Shapes of all tensors, then strides; never NULL."""
        tensors = [param for param in self.kernel.params if param.is_tensor]
        shapes = [text for param in tensors for text in param.extents]
        strides = [text for param in tensors for text in param.strides or ()]
        return self.texts.name([*shapes, *strides] or ["0"], self.values)

    def _params(self) -> str:
        arrays, infos, records = [], [], []
        first_extent = 0
        first_stride = sum(len(param.extents) for param in self.kernel.params)
        for number, param in enumerate(self.kernel.params):
            arrays.append(self._param_arrays(number, param))
            infos.append(self._param_info(number, param))
            records.append(f"{{&{self._name('param_infos')}[{number}], {first_extent}, {first_stride}}}")
            first_extent += len(param.extents)
            first_stride += len(param.strides or ())
        pointers = [f"&{self._name('param_infos')}[{number}]" for number in range(len(infos))]
        return "".join(
            [
                *arrays,
                array("tilec_param", self._name("param_infos"), infos),
                array("tilec_param* const", self._name("param_list"), pointers),
                array("param_record", self._name("params"), records),
            ]
        )

    def _param_arrays(self, number: int, param: ParamRecord) -> str:
        parts = []
        for what, texts in (("shape", param.extents), ("strides", param.strides or ())):
            name = self._name(f"p{number}_{what}")
            parts.append(array("tilec_extent", name, [self._extent(text) for text in texts]))
            parts.append(array("char* const", f"{name}_text", [string_literal(text) for text in texts]))
        return "".join(parts)

    def _extent(self, text: str) -> str:
        if text in self.dim_values:
            return f"{{{list(self.dim_values).index(text)}, 0, 0}}"
        if text.isdecimal():
            return f"{{TILEC_EXTENT_CONSTANT, 0, {text}}}"
        return "{TILEC_EXTENT_TEXT, 0, 0}"

    def _param_info(self, number: int, param: ParamRecord) -> str:
        dtype = lookup(param.dtype)
        shape = reference(self._name(f"p{number}_shape"), param.extents)
        shape_text = reference(self._name(f"p{number}_shape_text"), param.extents)
        strides = reference(self._name(f"p{number}_strides"), param.strides or ())
        stride_text = reference(self._name(f"p{number}_strides_text"), param.strides or ())
        align = dtype.bytes if param.is_tensor else 1
        return (
            f"{{sizeof(tilec_param), {_tag(param)}, {string_literal(param.name)}, {_ACCESS[param.access]}, "
            f"{{{dtype.dlpack}, {dtype.bits}, 1}}, {len(param.extents)}, {align}, {shape}, {strides}, {shape_text}, "
            f"{stride_text}}}"
        )

    def _dims(self) -> str:
        binds = bind_dims(self.kernel)
        rows = [_dim_row(dim.limit, found) for dim, found in zip(self.kernel.dims, binds)]
        names = [string_literal(dim.name) for dim in self.kernel.dims]
        return array("dim_record", self._name("dims"), rows) + array("char* const", self._name("dim_names"), names)

    # ---- variants ----

    def _invokers(self) -> str:
        """One function per number of workspace slices: unpacks a frame and calls the entry."""
        counts = sorted({len(variant.image.workspace) for variant in self.kernel.variants})
        return "".join(self._invoker(count) for count in counts)

    def _invoker(self, slices: int) -> str:
        tensors = [(f"frame->params[{i}].ptr", "void*") for i, p in enumerate(self.kernel.params) if p.is_tensor]
        workspace = [(f"frame->slices[{i}]", "void*") for i in range(slices)]
        scalars = [_scalar(i, p) for i, p in enumerate(self.kernel.params) if not p.is_tensor]
        dims = [(f"frame->dims[{i}]", "int64_t") for i in range(len(self.kernel.dims))]
        rest = [("scratch", "void*"), ("begin", "int64_t"), ("end", "int64_t")]
        arguments = [*tensors, *workspace, *scalars, *dims, *rest]
        types = ", ".join(kind for _, kind in arguments)
        values = ", ".join(value for value, _ in arguments)
        return (
            f"static void {self._name(f'invoke_{slices}')}(entry_fn entry, const call_frame* frame, void* scratch, "
            f"int64_t begin, int64_t end) {{\n  (void)frame;\n  ((void (*)({types}))entry)({values});\n}}\n"
        )

    def _variants(self, first_id: int) -> str:
        launches = [(variant, launch) for variant in self.kernel.variants for launch in variant.image.launches]
        symbols = list(dict.fromkeys(launch.symbol for _, launch in launches))
        guards = [guard for variant in self.kernel.variants for guard in self._guards(variant)]
        infos = self._name("launch_infos")
        return "".join(
            [
                *(f'extern __attribute__((visibility("hidden"))) void {symbol}(void);\n' for symbol in symbols),
                array("entry_fn", self._name("entries"), [launch.symbol for _, launch in launches]),
                array("tilec_launch_info", infos, [_launch_info(*each) for each in launches]),
                array("tilec_launch_info* const", self._name("launches"), [f"&{infos}[{i}]" for i in range(len(launches))]),
                array("tilec_guard", self._name("guards"), guards),
                array("variant_record", self._name("variants"), self._variant_rows(first_id)),
                array("tilec_variant* const", self._name("variant_list"), self._variant_pointers()),
            ]
        )

    def _variant_pointers(self) -> list[str]:
        return [f"&{self._name('variants')}[{i}].info" for i in range(len(self.kernel.variants))]

    def _variant_rows(self, first_id: int) -> list[str]:
        rows, first_launch, first_guard = [], 0, 0
        for number, variant in enumerate(self.kernel.variants):
            rows.append(self._variant_row(first_id + number, variant, first_launch, first_guard))
            first_launch += len(variant.image.launches)
            first_guard += len(self._guards(variant))
        return rows

    def _variant_row(self, number: int, variant: VariantRecord, first_launch: int, first_guard: int) -> str:
        guards = self._guards(variant)
        launches = variant.image.launches
        slices = variant.image.workspace
        config = json.dumps(dict(variant.config), sort_keys=True)
        info = (
            f"{{sizeof(tilec_variant), {number}, {string_literal(variant.target)}, {len(guards)}, {len(launches)}, "
            f"{reference(self._name('guards'), guards, first_guard)}, {self._name('launches')} + {first_launch}, "
            f"{string_literal(config)}}}"
        )
        grids = [text for launch in launches for text in _three(launch)]
        scratch = max((launch.scratch_bytes for launch in launches), default=0)
        functions = (
            f"{self.texts.name(grids, self.values)}, "
            f"{self.texts.name([piece.bytes for piece in slices], self.dim_values)}"
        )
        return (
            f"{{{info}, {self._name('entries')} + {first_launch}, {self._name(f'invoke_{len(slices)}')}, {functions}, "
            f"{scratch}, {self.targets.index(variant.target)}, {len(slices)}}}"
        )

    def _guards(self, variant: VariantRecord) -> list[str]:
        dims = list(self.dim_values)
        rows = [row for name, guard in variant.guards for row in _guard_rows(dims.index(name), guard)]
        params = [param.name for param in self.kernel.params]
        aligned = [f"{{TILEC_GUARD_ALIGN, {params.index(name)}, {value}}}" for name, value in variant.align]
        return rows + aligned

    # ---- dispatch ----

    def _dispatch(self) -> str:
        parts, rows = [], []
        for number, target in enumerate(self.targets):
            sets = pinned.pin_sets(self.kernel, target)
            prefix = self._name(f"t{number}")
            parts.append(pinned.source(sets, prefix))
            rows.append(f"{{{reference(f'{prefix}_sets', sets)}, {len(sets)}}}")
        return "".join(parts) + array("arch_table", self._name("tables"), rows)


def _tag(param: ParamRecord) -> str:
    if param.is_tensor:
        return "TILEC_ARG_TENSOR"
    dtype = lookup(param.dtype)
    if dtype.is_float:
        return "TILEC_ARG_FLOAT"
    return "TILEC_ARG_INT" if dtype.is_integer else "TILEC_ARG_BOOL"


def _dim_row(limit: int, binds: Sequence[Bind]) -> str:
    """The best place to read the dim from; BIND_NONE where there is none."""
    bind = binds[0] if binds else Bind("none")
    return (
        f"{{INT64_C({limit}), {bind.add}, {bind.mul}, {bind.div}, BIND_{bind.source.upper()}, {bind.param}, "
        f"{bind.axis}, 0}}"
    )


def _scalar(index: int, param: ParamRecord) -> tuple[str, str]:
    """(value, type) of a scalar argument of an entry."""
    dtype = lookup(param.dtype)
    kind = dtype.c_scalar if dtype.kind != "bool" else "int32_t"
    member = "f" if dtype.is_float else "i"
    return (f"({kind})frame->params[{index}].{member}", kind)


def _three(launch: LaunchCode) -> tuple[str, ...]:
    return (*launch.grid, "1", "1")[:3]


def _launch_info(variant: VariantRecord, launch: LaunchCode) -> str:
    block = ", ".join(map(str, launch.threads))
    return (
        f"{{sizeof(tilec_launch_info), {{{block}}}, {{1, 1, 1}}, 0, 0, 0, 0, 0, "
        f"{string_literal(variant.image.sha256)}, {launch.scratch_bytes}}}"
    )


def _guard_rows(dim: int, guard: Guard) -> list[str]:
    if guard.eq is not None:
        return [f"{{TILEC_GUARD_EQ, {dim}, INT64_C({guard.eq})}}"]
    rows = [] if guard.div == 1 else [f"{{TILEC_GUARD_DIV, {dim}, INT64_C({guard.div})}}"]
    for kind, bound in (("MIN", guard.min), ("MAX", guard.max)):
        if bound is not None:
            rows.append(f"{{TILEC_GUARD_{kind}, {dim}, INT64_C({bound})}}")
    return rows
