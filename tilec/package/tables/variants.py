"""The constant data of one kernel's variants: entries, guards, sizes, launches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import accumulate

from tilec.codegen.image import DeviceLaunch, LaunchCode
from tilec.dtypes import lookup
from tilec.package.family import family_of_variant
from tilec.package.model import KernelRecord, ParamRecord, VariantRecord
from tilec.package.tables.costs import cost_fields, costs_source
from tilec.package.tables.params import dim_values, size_values
from tilec.package.text.c import array, record, reference, row
from tilec.package.text.escape import c_string
from tilec.package.text.size_functions import TextFunctions


def variants_source(
    kernel: KernelRecord, prefix: str, targets: Sequence[str], first_id: int, texts: TextFunctions
) -> str:
    """The arrays ``<prefix>_variants`` and ``<prefix>_variant_list`` and what they point to. Variants are
    numbered from ``first_id``."""
    guards = [_guards(kernel, variant) for variant in kernel.variants]
    entries = [symbol for variant in kernel.variants for symbol in _entries(variant)]
    rows = _variant_rows(kernel, prefix, targets, first_id, texts)
    return "".join(
        [
            *_declarations(entries),
            *(_invoker(kernel, prefix, *shape) for shape in _frame_shapes(kernel)),
            costs_source(kernel, prefix, guard_spans(kernel)),
            array("entry_fn", f"{prefix}_entries", entries),
            array("tilec_guard", f"{prefix}_guards", [guard for each in guards for guard in each]),
            array("variant_record", f"{prefix}_variants", rows),
            array(
                "tilec_variant* const",
                f"{prefix}_variant_list",
                _addresses(f"{prefix}_variants", len(rows), ".info"),
            ),
        ]
    )


def launches_source(kernel: KernelRecord, prefix: str) -> str:
    """The public records of all launches, ``<prefix>_launch_infos``, and pointers to them,
    ``<prefix>_launches``."""
    infos = f"{prefix}_launch_infos"
    rows = [_launch_info(variant, launch) for variant in kernel.variants for launch in variant.image.launches]
    return array("tilec_launch_info", infos, rows) + array(
        "tilec_launch_info* const", f"{prefix}_launches", _addresses(infos, len(rows))
    )


def _declarations(symbols: Iterable[str]) -> list[str]:
    names = dict.fromkeys(symbols)
    return [f'extern __attribute__((visibility("hidden"))) void {name}(void);\n' for name in names]


def _addresses(name: str, count: int, member: str = "") -> list[str]:
    return [f"&{name}[{index}]{member}" for index in range(count)]


# ---- calls ----


def _entries(variant: VariantRecord) -> list[str]:
    """The functions of a variant, where its family has some."""
    has_entries = family_of_variant(variant).has_entries
    return [launch.symbol for launch in variant.image.launches] if has_entries else []


def _frame_shape(kernel: KernelRecord, variant: VariantRecord) -> tuple[int, int]:
    """How many workspace slices and dims the entries of a variant take."""
    return len(variant.image.workspace), len(kernel.dims) + variant.takes_num_sms


def _frame_shapes(kernel: KernelRecord) -> list[tuple[int, int]]:
    return sorted({_frame_shape(kernel, variant) for variant in kernel.variants if _entries(variant)})


def _invoker(kernel: KernelRecord, prefix: str, slices: int, dims: int) -> str:
    """A function that unpacks a frame and calls an entry with so many workspace slices and dims."""
    numbered = list(enumerate(kernel.params))
    arguments = [
        *((f"frame->params[{index}].ptr", "void*") for index, param in numbered if param.is_tensor),
        *((f"frame->slices[{index}]", "void*") for index in range(slices)),
        *(_scalar(index, param) for index, param in numbered if not param.is_tensor),
        *((f"frame->dims[{index}]", "int64_t") for index in range(dims)),
        ("scratch", "void*"),
        ("begin", "int64_t"),
        ("end", "int64_t"),
    ]
    name = _invoker_name(prefix, slices, dims)
    types = ", ".join(kind for _, kind in arguments)
    values = ", ".join(value for value, _ in arguments)
    return (
        f"static void {name}(entry_fn entry, const call_frame* frame, void* scratch,\n"
        f"    int64_t begin, int64_t end) {{\n"
        f"  (void)frame;\n"
        f"  ((void (*)({types}))entry)({values});\n"
        f"}}\n"
    )


def _invoker_name(prefix: str, slices: int, dims: int) -> str:
    return f"{prefix}_invoke_{slices}_{dims}"


def _scalar(index: int, param: ParamRecord) -> tuple[str, str]:
    """(value, type) of a scalar argument of an entry."""
    dtype = lookup(param.dtype)
    kind = "int32_t" if dtype.kind == "bool" else dtype.c_scalar
    member = "f" if dtype.is_float else "i"
    return (f"({kind})frame->params[{index}].{member}", kind)


# ---- records ----


def _variant_rows(
    kernel: KernelRecord, prefix: str, targets: Sequence[str], first_id: int, texts: TextFunctions
) -> list[str]:
    variants = kernel.variants
    launches = [0, *accumulate(len(variant.image.launches) for variant in variants)]
    entries = [0, *accumulate(len(_entries(variant)) for variant in variants)]
    guards, costs = guard_spans(kernel), cost_fields(kernel, prefix)
    rows = []
    for number, variant in enumerate(variants):
        slices = variant.image.workspace
        span = (_guards(kernel, variant), *guards[number])
        info = _info(variant, prefix, first_id + number, span, launches[number])
        fits, needs = _needs(variant, kernel, texts)
        invoke = _invoker_name(prefix, *_frame_shape(kernel, variant)) if _entries(variant) else "NULL"
        rows.append(
            record(
                info=info,
                entries=reference(f"{prefix}_entries", _entries(variant), entries[number]),
                invoke=invoke,
                code=family_of_variant(variant).code(kernel, prefix, number),
                grids=texts.name(_grids(variant), size_values(kernel)),
                slice_bytes=texts.name([piece.bytes for piece in slices], dim_values(kernel)),
                scratch_bytes=max((launch.scratch_bytes for launch in variant.image.launches), default=0),
                arch=targets.index(variant.target),
                num_slices=len(slices),
                fits=fits,
                needs=needs,
                takes_num_sms=str(variant.takes_num_sms).lower(),
                **costs[number],
            )
        )
    return rows


def _info(
    variant: VariantRecord, prefix: str, id_: int, guards: tuple[Sequence[str], int, int], launch: int
) -> str:
    """What callers may read of a variant, whose ``guards`` are these rows, the first place and how many, and
    whose first launch is that one of the kernel's."""
    rows, first, count = guards
    return record(
        struct_size="sizeof(tilec_variant)",
        id=id_,
        arch=c_string(variant.target),
        num_guards=count,
        num_launches=len(variant.image.launches),
        guards=reference(f"{prefix}_guards", rows, first),
        launches=f"{prefix}_launches + {launch}",
        config_json=c_string(json.dumps(dict(variant.config), sort_keys=True)),
    )


def _needs(variant: VariantRecord, kernel: KernelRecord, texts: TextFunctions) -> tuple[str, str]:
    """The function that says whether dims are small enough for the code, and the condition in words."""
    needs = variant.image.needs
    if not needs:
        return "NULL", "NULL"
    return texts.name([needs], size_values(kernel)), c_string(needs)


def _grids(variant: VariantRecord) -> list[str]:
    """Three texts per launch."""
    return [text for launch in variant.image.launches for text in (*launch.grid, "1", "1")[:3]]


def _launch_info(variant: VariantRecord, launch: LaunchCode) -> str:
    gpu = launch.gpu or DeviceLaunch()
    return record(
        struct_size="sizeof(tilec_launch_info)",
        block=row(*launch.threads),
        cluster=row(*gpu.cluster),
        smem_static=gpu.static_shared or 0,
        smem_dynamic=gpu.dynamic_shared,
        registers=gpu.registers or 0,
        num_tensor_maps=gpu.num_tensor_maps,
        image_sha256=c_string(variant.image.sha256),
        scratch_bytes=launch.scratch_bytes,
    )


# ---- guards ----


def guard_spans(kernel: KernelRecord) -> list[tuple[int, int]]:
    """Per variant, the place of its first guard in ``<prefix>_guards`` and their number."""
    counts = [len(_guards(kernel, variant)) for variant in kernel.variants]
    return list(zip(accumulate(counts, initial=0), counts, strict=False))


def _guards(kernel: KernelRecord, variant: VariantRecord) -> list[str]:
    dims = [dim.name for dim in kernel.dims]
    params = [param.name for param in kernel.params]
    rows = [
        _guard_row(kind.upper(), dims.index(name), part)
        for name, guard in variant.guards
        for kind, part in guard.parts.items()
    ]
    return rows + [_guard_row("ALIGN", params.index(name), value) for name, value in variant.align]


def _guard_row(kind: str, index: int, value: int) -> str:
    return record(kind=f"TILEC_GUARD_{kind}", index=index, value=f"INT64_C({value})")
