"""The generated C of a library: its kernels, variants, guards and dispatch tables as constant data."""

from __future__ import annotations

from tilec.backends.cuda.table import cpu_objects, cuda_images, images_source, min_driver
from tilec.codegen.image import RUNTIME_CALLS
from tilec.package import doors
from tilec.package.ctext import row
from tilec.package.detection import arch_needs, detection_source
from tilec.package.escape import c_string
from tilec.package.kernel_table import kernel_row, kernel_source
from tilec.package.metadata import META_HEADER_SIZE
from tilec.package.model import PackageSpec
from tilec.package.templates import render
from tilec.package.texts import TextFunctions
from tilec.targets import parse_target


def tables_source(spec: PackageSpec, targets: tuple[str, ...], build_id: str, metadata_size: int) -> str:
    """The C file that becomes the library together with the variants' objects. ``spec`` has its kernels
    sorted by name and their variants in dispatch order; ``targets`` are all of its targets, best first."""
    texts, images = TextFunctions(), list(cuda_images(spec))
    numbered = list(enumerate(zip(spec.kernels, _first_ids(spec), strict=True)))
    kernels = "".join(
        kernel_source(kernel, i, targets, first_id, texts, images) for i, (kernel, first_id) in numbered
    )
    rows = "\n".join(f"  {kernel_row(kernel, i, texts)}," for i, (kernel, _) in numbered)
    detection, num_features = detection_source(spec.host.arch)
    return render(
        "tables.c",
        name=spec.name,
        version=c_string(spec.version),
        build_id=build_id,
        num_features=num_features,
        num_cuda_archs=sum(not parse_target(name).is_cpu for name in targets),
        calls_runtime=int(_calls_runtime(spec)),
        images=images_source(spec.name, len(images)),
        detection=detection,
        texts=texts.source(),
        kernels=kernels,
        kernel_rows=rows,
        kernel_list="\n".join(f"  &kernels[{index}].info," for index in range(len(numbered))),
        arch_rows="\n".join(f"  {_arch_row(spec, name)}," for name in targets),
        meta_header=META_HEADER_SIZE,
        meta_size=metadata_size,
        num_kernels=len(numbered),
        num_archs=len(targets),
        doors="".join(doors.definition(spec, kernel, index) for index, kernel in enumerate(spec.kernels)),
    )


def _calls_runtime(spec: PackageSpec) -> bool:
    """Whether a CPU kernel prints or checks: then its threads have to be marked while it runs."""
    return any(name.encode() in code for code in cpu_objects(spec) for name in RUNTIME_CALLS)


def _arch_row(spec: PackageSpec, name: str) -> str:
    gpu = parse_target(name).gpu
    if gpu is None:
        return row(c_string(name), f"UINT64_C({arch_needs(name)})", "kDLCPU", 0, 0, 0, 0)
    flags = (int(gpu.exact), int(gpu.is_ptx))
    return row(c_string(name), 0, "kDLCUDA", gpu.capability, min_driver(spec, name), *flags)


def _first_ids(spec: PackageSpec) -> list[int]:
    """The id of each kernel's first variant; ids count through the library from 0."""
    ids, count = [], 0
    for kernel in spec.kernels:
        ids.append(count)
        count += len(kernel.variants)
    return ids
