"""Metal sources in a library: their text in a section, and what the runtime makes of them."""

from __future__ import annotations

from tilec.backends.metal.launch import MetalLaunch
from tilec.package.ctext import array, record
from tilec.package.escape import c_string
from tilec.package.images import Images
from tilec.package.model import KernelRecord, PackageSpec, VariantRecord
from tilec.targets import parse_target


def is_metal(variant: VariantRecord) -> bool:
    """Whether a variant runs on an Apple GPU."""
    return parse_target(variant.target).family == "metal"


def metal_images(spec: PackageSpec) -> Images:
    """The sources."""
    return Images(spec, "metal", "metal_image", is_metal)


def images_source(spec: PackageSpec) -> str:
    """C that declares the sources and places for what Metal makes of each."""
    images = metal_images(spec)
    count = len(images.codes)
    rows = [
        record(data=images.symbol(number), libraries=f"metal_libraries[{number}]") for number in range(count)
    ]
    return "".join(
        [
            "/* ---- sources for Apple GPUs ---- */\n",
            '#include "metal_records.h"\n',
            images.declaration(),
            f"static void* metal_libraries[{count}][MAX_METAL_DEVICES];\n",
            array("metal_image", "metal_images", rows),
            "\n",
        ]
    )


def metal_source(spec: PackageSpec, kernel: KernelRecord, prefix: str) -> str:
    """The array ``<prefix>_metal``, one metal_code per variant, and what it points to."""
    images = list(metal_images(spec).codes)
    variants = [variant for variant in kernel.variants if is_metal(variant)]
    rows = [
        record(
            pipelines=f"{prefix}_metal_pipelines[{number}]",
            info=f"&{prefix}_launch_infos[{info}]",
            blocks_per_unit=gpu.blocks_per_unit,
            symbol=c_string(symbol),
        )
        for number, (info, symbol, gpu) in enumerate(_launches(kernel))
    ]
    code_rows, first = [], 0
    for variant in variants:
        image = f"&metal_images[{images.index(variant.image.sha256)}]"
        code_rows.append(record(launches=f"{prefix}_metal_launches + {first}", image=image))
        first += len(variant.image.launches)
    return "".join(
        [
            f"static void* {prefix}_metal_pipelines[{len(rows)}][MAX_METAL_DEVICES];\n",
            array("metal_launch", f"{prefix}_metal_launches", rows),
            array("metal_code", f"{prefix}_metal", code_rows, const=False),
        ]
    )


def metal_reference(kernel: KernelRecord, prefix: str, number: int) -> str:
    """A pointer to the metal_code of variant ``number``."""
    return f"&{prefix}_metal[{sum(is_metal(variant) for variant in kernel.variants[:number])}]"


def _launches(kernel: KernelRecord) -> list[tuple[int, str, MetalLaunch]]:
    """Of the variants for Apple GPUs: the place among all launches, the symbol, what it takes."""
    owners = [(variant, launch) for variant in kernel.variants for launch in variant.image.launches]
    return [
        (place, launch.symbol, launch.gpu)
        for place, (variant, launch) in enumerate(owners)
        if is_metal(variant) and isinstance(launch.gpu, MetalLaunch)
    ]
