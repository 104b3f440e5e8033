"""The constant data of one kernel's parameters and dims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilec.dtypes import lookup
from tilec.ir.num_sms import NUM_SMS
from tilec.package.bindings.binds import Bind, bind_dims
from tilec.package.model import DimRecord, KernelRecord, ParamRecord
from tilec.package.text.c import array, record, reference
from tilec.package.text.escape import c_string

_ACCESS = {"in": "TILEC_IN", "out": "TILEC_OUT", "inout": "TILEC_INOUT"}


def dim_values(kernel: KernelRecord) -> dict[str, str]:
    """Each dim as a C expression over ``dims``; behind them stands what the library fills in, for variants
    that take it."""
    names = [*(dim.name for dim in kernel.dims), NUM_SMS]
    return {name: f"dims[{index}]" for index, name in enumerate(names)}


def size_values(kernel: KernelRecord) -> dict[str, str]:
    """What sizes may name: the dims, and the scalar parameters."""
    scalars = {p.name: f"params[{index}].i" for index, p in enumerate(kernel.params) if not p.is_tensor}
    return {**scalars, **dim_values(kernel)}


def extent_texts(kernel: KernelRecord) -> list[str]:
    """The shapes of all tensors, then the strides, as `texts_fn` writes them; never empty."""
    shapes = [text for param in kernel.params for text in param.extents]
    strides = [text for param in kernel.params for text in param.strides or ()]
    return [*shapes, *strides] or ["0"]


def params_source(kernel: KernelRecord, prefix: str) -> str:
    """The arrays ``<prefix>_param_list`` (public records) and ``<prefix>_params`` (what validation needs)."""
    infos = f"{prefix}_param_infos"
    numbered = list(enumerate(kernel.params))
    return "".join(
        [
            *(_text_arrays(kernel, param, f"{prefix}_p{number}") for number, param in numbered),
            array("tilec_param", infos, [_info(param, f"{prefix}_p{number}") for number, param in numbered]),
            array("tilec_param* const", f"{prefix}_param_list", [f"&{infos}[{n}]" for n, _ in numbered]),
            array("param_record", f"{prefix}_params", _records(kernel, infos)),
        ]
    )


def dims_source(kernel: KernelRecord, prefix: str) -> str:
    """The arrays ``<prefix>_dims`` and ``<prefix>_dim_names``."""
    rows = [_dim_row(dim, binds) for dim, binds in zip(kernel.dims, bind_dims(kernel), strict=True)]
    names = [c_string(dim.name) for dim in kernel.dims]
    return array("dim_record", f"{prefix}_dims", rows) + array("char* const", f"{prefix}_dim_names", names)


def _text_arrays(kernel: KernelRecord, param: ParamRecord, prefix: str) -> str:
    places = {dim.name: index for index, dim in enumerate(kernel.dims)}
    parts = []
    for what, texts in (("shape", param.extents), ("strides", param.strides or ())):
        parts.append(array("tilec_extent", f"{prefix}_{what}", [_extent(text, places) for text in texts]))
        parts.append(array("char* const", f"{prefix}_{what}_text", [c_string(text) for text in texts]))
    return "".join(parts)


def _extent(text: str, places: Mapping[str, int]) -> str:
    if text in places:
        return record(dim=places[text])
    if text.isdecimal():
        return record(dim="TILEC_EXTENT_CONSTANT", value=text)
    return record(dim="TILEC_EXTENT_TEXT")


def _info(param: ParamRecord, prefix: str) -> str:
    dtype = lookup(param.dtype)
    strides = param.strides or ()
    return record(
        struct_size="sizeof(tilec_param)",
        tag=_tag(param),
        name=c_string(param.name),
        access=_ACCESS[param.access],
        dtype=record(code=dtype.dlpack, bits=dtype.bits, lanes=1),
        ndim=len(param.extents),
        align_bytes=dtype.bytes if param.is_tensor else 1,
        shape=reference(f"{prefix}_shape", param.extents),
        strides=reference(f"{prefix}_strides", strides),
        shape_text=reference(f"{prefix}_shape_text", param.extents),
        stride_text=reference(f"{prefix}_strides_text", strides),
    )


def _records(kernel: KernelRecord, infos: str) -> list[str]:
    rows = []
    first_extent, first_stride = 0, sum(len(param.extents) for param in kernel.params)
    for number, param in enumerate(kernel.params):
        info = f"&{infos}[{number}]"
        rows.append(
            record(
                info=info,
                first_extent=first_extent,
                first_stride=first_stride,
                begins_anywhere=str(param.begins_anywhere).lower(),
            )
        )
        first_extent += len(param.extents)
        first_stride += len(param.strides or ())
    return rows


def _tag(param: ParamRecord) -> str:
    if param.is_tensor:
        return "TILEC_ARG_TENSOR"
    dtype = lookup(param.dtype)
    if dtype.is_float:
        return "TILEC_ARG_FLOAT"
    return "TILEC_ARG_INT" if dtype.is_integer else "TILEC_ARG_BOOL"


def _dim_row(dim: DimRecord, binds: Sequence[Bind]) -> str:
    """The best place to read the dim from; BIND_NONE where there is none."""
    bind = binds[0] if binds else Bind("none")
    return record(
        limit=f"INT64_C({dim.limit})",
        add=bind.add,
        mul=bind.mul,
        div=bind.div,
        bind=f"BIND_{bind.source.upper()}",
        param=bind.param,
        axis=bind.axis,
    )
