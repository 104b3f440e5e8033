"""The variant that the options of `tilec explain` name, and which schedule of several it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tilec.errors import InputError, Place
from tilec.spelling import counted

if TYPE_CHECKING:
    from tilec.manifest import KernelPlan, Plan, Variant


def variant_named(plan: Plan, manifest: Path, target: str | None, number: int) -> Variant:
    """By its number among those of a target, or of the kernel's first one. Raises InputError for another."""
    first = plan.kernels[0]
    chosen = target or first.variants[0].target.name
    variants = [variant for variant in first.variants if variant.target.name == chosen] or list(
        first.variants
    )
    if not 0 <= number < len(variants):
        raise InputError(
            f"{first.name} has {counted(len(variants), 'variant')} on {chosen}",
            place=Place(str(manifest), key="--variant"),
            remedy=f"give --variant 0 to {len(variants) - 1}; tilec check lists them",
        )
    return variants[number]


def variant_serving(plan: Plan, manifest: Path, target: str | None, dims: Mapping[str, int]) -> Variant:
    """The one that a call with ``dims`` takes on a machine of a target, or of the kernel's first one. Raises
    InputError for other dims, and where none serves them."""
    from tilec.build.answers.dispatch import Server

    kernel = plan.kernels[0]
    place, known = Place(str(manifest), key="--shape"), kernel.variants[0].dims
    if set(dims) != set(known):
        raise InputError(
            f"{kernel.name} has the dims {', '.join(known)}", place=place, remedy="give each one"
        )
    chosen = target or kernel.variants[0].target.name
    found = Server(kernel, chosen).service(dims).variant
    if found is None:
        raise InputError(f"no variant of {kernel.name} on {chosen} serves this call", place=place)
    return found


def schedule_lines(
    kernel: KernelPlan, variant: Variant, target: str | None, dims: Mapping[str, int] | None
) -> list[str]:
    """Of a schedule: its config, who chose it and what it costs; with ``dims`` what this and the others of
    its list that admit them come to on a machine of a target, or of the variant's. Nothing of other
    variants."""
    from tilec.backends.base import limits_of
    from tilec.costs import cost
    from tilec.targets import parse_target

    if not variant.is_schedule:
        return []
    config = " ".join(f"{key}={value}" for key, value in variant.config.items()) or "the author's defaults"
    lines = [f"{variant.config_source}: {config}"]
    if not variant.cost:
        return lines
    lines.append(f"cost, in us: {variant.cost}")
    if dims is not None:
        machine = parse_target(target) if target else variant.target
        units, features = limits_of(machine).units, machine.features
        listed = (one for one in kernel.variants if one.is_listed_with(variant) and one.admits(dims))
        costs = sorted((cost(one.cost, dims, units, features), one is not variant) for one in listed)
        others = ", ".join(f"{us:.1f}" for us, is_other in costs if is_other)
        lines.append(f"{cost(variant.cost, dims, units, features):.1f} us here, the others {others}")
    return lines
