"""CUDA images in a library: their bytes in a section, and what the runtime loads them by as constant data."""

from __future__ import annotations

from collections.abc import Sequence

from tilec.backends.cuda.launch import CudaLaunch, TensorMapCode, WindowCode
from tilec.dtypes import lookup
from tilec.package.checks import check_count
from tilec.package.family import all_variants
from tilec.package.model import KernelRecord, PackageSpec, VariantRecord
from tilec.package.tables.images import Images
from tilec.package.tables.params import size_values
from tilec.package.text.c import array, record, reference, row
from tilec.package.text.escape import c_string
from tilec.package.text.size_functions import TextFunctions
from tilec.targets import parse_target

#: CUtensorMapDataType and CUtensorMapSwizzle of the driver's cuda.h.
_MAP_TYPES = {"float16": 6, "float32": 7, "tfloat32": 7, "float64": 8, "bfloat16": 9}
_BIT_TYPES = {8: 0, 16: 1, 32: 2, 64: 4}
_SWIZZLES = (0, 32, 64, 128)


def is_cuda(variant: VariantRecord) -> bool:
    """Whether a variant runs on a GPU."""
    return parse_target(variant.target).family == "cuda"


def cuda_images(spec: PackageSpec) -> Images:
    """The CUDA images."""
    return Images(spec, "cuda", "image", is_cuda)


def min_driver(spec: PackageSpec, target: str) -> int:
    """The oldest driver that loads every image of ``target``."""
    return max(one.image.min_driver for one in all_variants(spec) if one.target == target)


def images_source(spec: PackageSpec) -> str:
    """C that declares the images and a place for what the driver makes of each."""
    images = cuda_images(spec)
    count = len(images.codes)
    rows = [
        record(data=images.symbol(number), library=f"&cuda_libraries[{number}]") for number in range(count)
    ]
    return "".join(
        [
            "/* ---- CUDA images ---- */\n",
            '#include "devices/cuda/cuda_records.h"\n',
            images.declaration(),
            f"static void* cuda_libraries[{count}];\n",
            array("cuda_image", "cuda_images", rows),
            "\n",
        ]
    )


def cuda_source(spec: PackageSpec, kernel: KernelRecord, prefix: str, texts: TextFunctions) -> str:
    """The array ``<prefix>_cuda``, one cuda_code per CUDA variant, and what it points to; the public records
    of launches are ``<prefix>_launch_infos``."""
    variants = [variant for variant in kernel.variants if is_cuda(variant)]
    launches = [launch for variant in variants for launch in _launches(variant)]
    maps = [_map_row(kernel, found) for launch in launches for found in launch.tensor_maps]
    launch_rows = _launch_rows(kernel, variants, prefix, texts)
    code_rows = _code_rows(list(cuda_images(spec).codes), variants, prefix)
    return "".join(
        [
            f"static void* {prefix}_cuda_functions[{len(launches)}][MAX_CUDA_DEVICES];\n",
            array("tensor_map", f"{prefix}_cuda_maps", maps),
            array("cuda_launch", f"{prefix}_cuda_launches", launch_rows, const=False),
            array("cuda_code", f"{prefix}_cuda", code_rows, const=False),
        ]
    )


def _launch_rows(
    kernel: KernelRecord, variants: Sequence[VariantRecord], prefix: str, texts: TextFunctions
) -> list[str]:
    """A cuda_launch for each launch of the variants, whose tensor maps lie one behind the other."""
    symbols = [launch.symbol for variant in variants for launch in variant.image.launches]
    launches = [launch for variant in variants for launch in _launches(variant)]
    rows, first_map, sizes = [], 0, size_values(kernel)
    for number, (symbol, launch, info) in enumerate(
        zip(symbols, launches, _launch_places(kernel), strict=True)
    ):
        map_sizes = [text for found in launch.tensor_maps for text in _sizes(found)]
        rows.append(
            record(
                functions=f"{prefix}_cuda_functions[{number}]",
                info=f"&{prefix}_launch_infos[{info}]",
                blocks_per_sm=launch.blocks_per_sm,
                programmatic=int(launch.programmatic),
                cooperative=int(launch.cooperative),
                maps=reference(f"{prefix}_cuda_maps", launch.tensor_maps, first_map),
                map_sizes=texts.name(map_sizes, sizes),
                loaded=texts.name([launch.loaded] if launch.loaded else [], sizes),
                symbol=c_string(symbol),
            )
        )
        first_map += len(launch.tensor_maps)
    return rows


def _code_rows(digests: Sequence[str], variants: Sequence[VariantRecord], prefix: str) -> list[str]:
    """A cuda_code for each variant: its first launch, and which image, by ``digests``, has them."""
    rows, first = [], 0
    for variant in variants:
        image = f"&cuda_images[{digests.index(variant.image.sha256)}]"
        rows.append(record(launches=f"{prefix}_cuda_launches + {first}", image=image))
        first += len(variant.image.launches)
    return rows


def _launches(variant: VariantRecord) -> list[CudaLaunch]:
    """What its launches take."""
    found = [launch.gpu or CudaLaunch() for launch in variant.image.launches]
    return [launch for launch in found if isinstance(launch, CudaLaunch)]


def _launch_places(kernel: KernelRecord) -> list[int]:
    """Where the launches of CUDA variants stand among those of all variants."""
    owners = [variant for variant in kernel.variants for _ in variant.image.launches]
    return [place for place, variant in enumerate(owners) if is_cuda(variant)]


def cuda_reference(kernel: KernelRecord, prefix: str, number: int) -> str:
    """A pointer to the cuda_code of variant ``number``."""
    return f"&{prefix}_cuda[{sum(is_cuda(variant) for variant in kernel.variants[:number])}]"


def check_maps(kernel: KernelRecord, variant: VariantRecord, most: int) -> None:
    """Raises PackageError for more than ``most`` tensor maps."""
    maps = sum(launch.num_tensor_maps for launch in _launches(variant))
    check_count(kernel, "tensor maps in one variant", maps, most)


def _map_row(kernel: KernelRecord, found: TensorMapCode) -> str:
    tensors = [index for index, param in enumerate(kernel.params) if param.is_tensor]
    of_workspace = found.tensor - len(tensors)
    return record(
        param=tensors[found.tensor] if of_workspace < 0 else len(kernel.params) + of_workspace,
        dtype=_map_type(found.dtype),
        rank=len(found.extents),
        swizzle=_SWIZZLES.index(found.swizzle),
        box=row(*found.box),
        rest=found.rest,
        **_window(found.window),
    )


def _window(window: WindowCode | None) -> dict[str, str]:
    """Steps, lower and upper corners; nothing, which C takes for zeros, for a map of boxes."""
    if window is None:
        return {}
    return {"steps": row(*window.steps), "lower": row(*window.lower), "upper": row(*window.upper)}


def _map_type(dtype: str) -> int:
    """CUtensorMapDataType; what has no type of its own moves as bits."""
    bits = lookup(dtype).bits
    return _MAP_TYPES.get(dtype, _BIT_TYPES[bits])


def _sizes(found: TensorMapCode) -> tuple[str, ...]:
    """What the runtime evaluates for one map."""
    return (*found.extents, *found.strides)
