"""What a page shows of one variant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilec.backends.base import backend_of
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.build.elaborated.frontend import elaborate_variant, naming
from tilec.build.reuse.images import image_of
from tilec.codegen.image import DeviceLaunch
from tilec.errors import Remark, TilecError
from tilec.ir import nodes as ir
from tilec.lowering.lowered import LoweredLaunch
from tilec.manifest import Variant


@dataclass(frozen=True)
class View:
    """A variant as it was ``written`` and as it is ``lowered``, with its launches. ``compiled`` has for each
    launch what the compiler said of it; None where it has no device's. ``unknown``: why not."""

    variant: Variant
    written: ir.Kernel
    lowered: ir.Kernel
    launches: tuple[LoweredLaunch, ...]
    compiled: tuple[DeviceLaunch | None, ...]
    unknown: str
    remarks: tuple[Remark, ...]


def view_of(variant: Variant) -> View:
    """Elaborates, lowers and compiles the variant. Raises what these raise; a compiler that is missing or
    fails leaves its part of the page out."""
    written, _, remarks, _ = elaborate_variant(variant)
    target = variant.target
    with naming(variant):
        lowered = lower(written, target)
        launches = to_tir(lowered, target).launches
        compiled, unknown = _compiled(written, variant, launches)
    return View(variant, written, lowered, launches, compiled, unknown, remarks)


def _compiled(
    kernel: ir.Kernel, variant: Variant, launches: Sequence[LoweredLaunch]
) -> tuple[tuple[DeviceLaunch | None, ...], str]:
    try:
        backend_of(variant.target).compiler()
        image = image_of(kernel, variant.target, None)
    except TilecError as error:
        return (None,) * len(launches), str(error).splitlines()[0]
    return tuple(launch.gpu for launch in image.launches), ""
