"""What each stage of the road made of one variant, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.base import backend_of
from tilec.build.elaborated.asked import remarks_on_roads
from tilec.build.elaborated.frontend import elaborate_variant, naming
from tilec.build.reuse.images import symbol_prefix
from tilec.errors import InputError
from tilec.manifest import Variant
from tilec.spelling import suggestion

if TYPE_CHECKING:
    from tilec.errors import Remark
    from tilec.ir.nodes import Kernel
    from tilec.lowering.lowered import LoweredLaunch
    from tilec.targets import Target

_FIRST = "tile"


def stage_names(target: Target) -> tuple[str, ...]:
    """The stages of a target in order: the tile IR, the form after each pass, TIR, source (CUDA C++, or C),
    LLVM IR (of a CPU), assembly (PTX for CUDA)."""
    from tilec.backends.pipeline import stages

    return (*stages(target), *backend_of(target).late_stages)


def stage_text(variant: Variant, stage: str) -> str:
    """The form of a variant after a stage. Raises InputError for an unknown stage."""
    from tilec.backends.pipeline import lower
    from tilec.ir.text.printer import format_kernel

    names = stage_names(variant.target)
    if stage not in names:
        whole = ", ".join((_FIRST, *backend_of(variant.target).late_stages))
        raise InputError(
            f'target {variant.target.name} has no stage "{stage}"',
            why=f"it has {whole}, and the form after each pass",
            remedy=suggestion(stage, names),
        )
    kernel = elaborate_variant(variant).kernel
    with naming(variant):
        if stage == _FIRST:
            return format_kernel(kernel)
        if stage in backend_of(variant.target).late_stages:
            return _generated(variant, kernel, stage)
        return format_kernel(lower(kernel, variant.target, until=stage))


def _generated(variant: Variant, kernel: Kernel, stage: str) -> str:
    """TIR, source or assembly."""
    from tilec.backends.pipeline import lower
    from tilec.backends.to_tir import to_tir

    lowered = to_tir(lower(kernel, variant.target), variant.target)
    prefix = symbol_prefix(lowered, variant.target)
    return backend_of(variant.target).text(stage, lowered, variant.target, prefix)


def lowered_launches(variant: Variant) -> tuple[tuple[LoweredLaunch, ...], tuple[Remark, ...]]:
    """The launches of a variant with the roads of their statements and what lowering says beside; and what
    the author of the kernel is to be told."""
    from tilec.backends.pipeline import lower
    from tilec.backends.to_tir import to_tir

    kernel, _, remarks, _ = elaborate_variant(variant)
    with naming(variant):
        launches = to_tir(lower(kernel, variant.target), variant.target).launches
    roads = (road for launch in launches for road in launch.roads)
    return launches, (*remarks, *remarks_on_roads(kernel, variant, roads))
