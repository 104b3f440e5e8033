"""The generated C of a library: its kernels, variants, guards and dispatch tables as constant data."""

from __future__ import annotations

from tilec.package.bindings import doors
from tilec.package.family import families_in, package_family
from tilec.package.library.metadata import META_HEADER_SIZE
from tilec.package.model import PackageSpec
from tilec.package.tables.kernel import kernel_row, kernel_source
from tilec.package.templates import render
from tilec.package.text.c import record, row
from tilec.package.text.escape import c_string
from tilec.package.text.size_functions import TextFunctions
from tilec.targets import parse_target


def tables_source(spec: PackageSpec, targets: tuple[str, ...], build_id: str, metadata_size: int) -> str:
    """The C file that becomes the library together with its runtime and the variants' objects. ``spec`` has
    its kernels sorted by name and their variants in dispatch order; ``targets`` are all of its targets, best
    first."""
    texts, families = TextFunctions(), families_in(spec)
    kernels = "".join(
        kernel_source(spec, i, targets, first_id, texts) for i, first_id in enumerate(_first_ids(spec))
    )
    rows = "\n".join(f"  {kernel_row(kernel, i, texts)}," for i, kernel in enumerate(spec.kernels))
    return render(
        "tables.c",
        name=spec.name,
        version=c_string(spec.version),
        build_id=build_id,
        families="".join(family.declarations(spec) for family in families),
        texts=texts.source(),
        kernels=kernels,
        kernel_rows=rows,
        kernel_list="\n".join(f"  &kernels[{index}].info," for index in range(len(spec.kernels))),
        arch_rows="\n".join(f"  {_arch_row(spec, name)}," for name in targets),
        meta_header=META_HEADER_SIZE,
        meta_size=metadata_size,
        num_kernels=len(spec.kernels),
        num_archs=len(targets),
        doors="".join(doors.definition(spec, kernel, index) for index, kernel in enumerate(spec.kernels)),
    )


def _arch_row(spec: PackageSpec, name: str) -> str:
    target = parse_target(name)
    family = package_family(target)
    needs = f"UINT64_C({target.required_mask})"
    facts = row(*family.arch_facts(spec, target) or (0,))
    return record(name=c_string(name), needs=needs, device_type=family.device_type, facts=facts)


def _first_ids(spec: PackageSpec) -> list[int]:
    """The id of each kernel's first variant; ids count through the library from 0."""
    ids, count = [], 0
    for kernel in spec.kernels:
        ids.append(count)
        count += len(kernel.variants)
    return ids
