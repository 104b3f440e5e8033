"""Code objects in a library: their bytes in a section, and what the runtime loads them by."""

from __future__ import annotations

from tilec.backends.hip.launch import HipLaunch
from tilec.package.ctext import array, record
from tilec.package.escape import c_string
from tilec.package.images import Images
from tilec.package.model import KernelRecord, PackageSpec, VariantRecord
from tilec.targets import parse_target


def is_hip(variant: VariantRecord) -> bool:
    """Whether a variant runs on an AMD GPU."""
    return parse_target(variant.target).family == "hip"


def hip_images(spec: PackageSpec) -> Images:
    """The code objects."""
    return Images(spec, "hip", "hip_image", is_hip)


def images_source(spec: PackageSpec) -> str:
    """C that declares the code objects and places for what HIP makes of each."""
    images = hip_images(spec)
    count = len(images.codes)
    rows = [record(data=images.symbol(number), modules=f"hip_modules[{number}]") for number in range(count)]
    return "".join(
        [
            "/* ---- code objects of AMD GPUs ---- */\n",
            '#include "hip_records.h"\n',
            images.declaration(),
            f"static void* hip_modules[{count}][MAX_HIP_DEVICES];\n",
            array("hip_image", "hip_images", rows),
            "\n",
        ]
    )


def hip_source(spec: PackageSpec, kernel: KernelRecord, prefix: str) -> str:
    """The array ``<prefix>_hip``, one hip_code per variant, and what it points to."""
    images = list(hip_images(spec).codes)
    variants = [variant for variant in kernel.variants if is_hip(variant)]
    rows = [
        record(
            functions=f"{prefix}_hip_functions[{number}]",
            info=f"&{prefix}_launch_infos[{info}]",
            blocks_per_unit=gpu.blocks_per_unit,
            symbol=c_string(symbol),
        )
        for number, (info, symbol, gpu) in enumerate(_launches(kernel))
    ]
    code_rows, first = [], 0
    for variant in variants:
        image = f"&hip_images[{images.index(variant.image.sha256)}]"
        code_rows.append(record(launches=f"{prefix}_hip_launches + {first}", image=image))
        first += len(variant.image.launches)
    return "".join(
        [
            f"static void* {prefix}_hip_functions[{len(rows)}][MAX_HIP_DEVICES];\n",
            array("hip_launch", f"{prefix}_hip_launches", rows),
            array("hip_code", f"{prefix}_hip", code_rows, const=False),
        ]
    )


def hip_reference(kernel: KernelRecord, prefix: str, number: int) -> str:
    """A pointer to the hip_code of variant ``number``."""
    return f"&{prefix}_hip[{sum(is_hip(variant) for variant in kernel.variants[:number])}]"


def _launches(kernel: KernelRecord) -> list[tuple[int, str, HipLaunch]]:
    """Of the variants for AMD GPUs: the place among all launches, the symbol, what it takes."""
    owners = [(variant, launch) for variant in kernel.variants for launch in variant.image.launches]
    return [
        (place, launch.symbol, launch.gpu)
        for place, (variant, launch) in enumerate(owners)
        if is_hip(variant) and isinstance(launch.gpu, HipLaunch)
    ]
