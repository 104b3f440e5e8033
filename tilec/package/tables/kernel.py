"""The constant data of one kernel in the generated C: what dispatch, launch and checks read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilec.package.family import family_of_variant
from tilec.package.model import KernelRecord, PackageSpec
from tilec.package.tables import pinned
from tilec.package.tables.params import dims_source, extent_texts, params_source, size_values
from tilec.package.tables.variants import guard_spans, launches_source, variants_source
from tilec.package.text.c import array, record, reference
from tilec.package.text.escape import c_string
from tilec.package.text.size_functions import TextFunctions


def kernel_source(
    spec: PackageSpec, index: int, targets: Sequence[str], first_id: int, texts: TextFunctions
) -> str:
    """All arrays of kernel number ``index``, named ``k<index>_<what>``."""
    kernel, prefix = spec.kernels[index], f"k{index}"
    families = dict.fromkeys(map(family_of_variant, kernel.variants))
    parts = [
        f"\n/* ---- kernel {kernel.name} ---- */\n",
        params_source(kernel, prefix),
        dims_source(kernel, prefix),
        launches_source(kernel, prefix),
        *(family.codes(spec, kernel, prefix, texts) for family in families),
        variants_source(kernel, prefix, targets, first_id, texts),
        _dispatch_source(kernel, prefix, targets),
    ]
    return "".join(parts)


def kernel_row(kernel: KernelRecord, index: int, texts: TextFunctions) -> str:
    """The kernel_record over the arrays of `kernel_source`."""
    prefix = f"k{index}"
    info = record(
        struct_size="sizeof(tilec_kernel)",
        num_params=len(kernel.params),
        num_dims=len(kernel.dims),
        num_variants=len(kernel.variants),
        name=c_string(kernel.name),
        doc=c_string(kernel.doc),
        params=reference(f"{prefix}_param_list", kernel.params),
        dim_names=reference(f"{prefix}_dim_names", kernel.dims),
        variants=f"{prefix}_variant_list",
    )
    return record(
        info=info,
        variants=f"{prefix}_variants",
        params=reference(f"{prefix}_params", kernel.params),
        dims=reference(f"{prefix}_dims", kernel.dims),
        tables=f"{prefix}_tables",
        guards=reference(f"{prefix}_guards", [span for span in guard_spans(kernel) if span[1]]),
        extents=texts.name(extent_texts(kernel), size_values(kernel)),
        tensors=_bits(param.is_tensor for param in kernel.params),
        dim_limit=f"UINT64_C({min((dim.limit for dim in kernel.dims), default=0)})",
        overlapping=_bits(param.may_overlap for param in kernel.params),
    )


def _bits(flags: Iterable[bool]) -> str:
    return f"UINT64_C({sum(1 << place for place, flag in enumerate(flags) if flag)})"


def _dispatch_source(kernel: KernelRecord, prefix: str, targets: Sequence[str]) -> str:
    """``<prefix>_tables``: one arch_table per target of the library."""
    parts, rows = [], []
    spans = guard_spans(kernel)
    for number, target in enumerate(targets):
        sets = pinned.pin_sets(kernel, target)
        parts.append(pinned.source(sets, f"{prefix}_t{number}", spans))
        rows.append(record(sets=reference(f"{prefix}_t{number}_sets", sets), num_sets=len(sets)))
    return "".join(parts) + array("arch_table", f"{prefix}_tables", rows)
