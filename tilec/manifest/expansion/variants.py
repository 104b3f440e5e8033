"""What a manifest expands to: kernels with their variants, in manifest order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tilec.errors import Place
from tilec.ir.guards import Guard
from tilec.manifest.model import Backward, Kernel, Manifest, given_tolerance
from tilec.portable.dims import dims_text
from tilec.targets import Host, Target


@dataclass(frozen=True)
class Variant:
    """One kernel on one target under one set of guards with one config.

    ``kernel`` is the expanded name; ``source`` the manifest's text, relative to ``base``, the manifest's
    folder. ``args`` holds the values of ``for`` too. ``index`` counts within the kernel. ``outputs``: the
    parameters that the manifest says are written, None where it does not say. ``config_places``: the tables
    of the manifest that values of ``config`` may be from; ``value_places``: the very keys of ``args``, of
    what the manifest itself says of ``config``, and of what it has searched. ``cost``: of a schedule among
    several; ``is_schedule``: ``config`` is one of an override's schedules, which tuned configs do not
    replace; ``listed_under``: the guards of all of these, to which ``dims`` add its own.
    ``is_auto``: ``config`` is what stays as it is; the rest is chosen when the kernel is known.
    ``tolerance``: what overrides and a schedule say about checking results, on top of the kernel's: any of
    rtol, atol, max_mismatch."""

    kernel: str
    source: str
    base: Path
    target: Target
    dims: Mapping[str, Guard]
    args: Mapping[str, Any]
    config: Mapping[str, Any]
    config_source: str
    index: int
    place: Place
    outputs: tuple[str, ...] | None = None
    config_places: tuple[Place, ...] = ()
    value_places: Mapping[str, Place] = field(default_factory=dict)
    cost: str = ""
    is_schedule: bool = False
    listed_under: Mapping[str, Guard] | None = None
    is_auto: bool = False
    tolerance: Mapping[str, float] = field(default_factory=dict)

    def admits(self, dims: Mapping[str, int]) -> bool:
        """Whether its guards hold."""
        return all(guard.admits(dims[name]) for name, guard in self.dims.items())

    def is_listed_with(self, other: Variant) -> bool:
        """Whether both are schedules of one list."""
        return self.is_schedule and (self.target, self.listed_under) == (other.target, other.listed_under)

    @property
    def title(self) -> str:
        """One line for people: `matmul_float16 on x86-64-v3, M=1..64 N=4096`."""
        guards = dims_text(self.dims)
        return f"{self.kernel} on {self.target.name}" + (f", {guards}" if guards else "")


@dataclass(frozen=True)
class KernelPlan:
    """One kernel of the library: its manifest entry, its name and all its variants."""

    name: str
    entry: Kernel
    args: Mapping[str, Any]
    variants: tuple[Variant, ...]
    place: Place
    backward: Backward | None = None

    @property
    def tolerance(self) -> dict[str, float]:
        """What the entry says about checking results: any of rtol, atol, max_mismatch."""
        return given_tolerance(self.entry)


@dataclass(frozen=True)
class Plan:
    """An expanded manifest for one of its hosts. ``warnings`` are lines for the user (stale or unmatched
    tuned entries); ``idle_overrides``: one for each override that is for targets of no host."""

    path: Path
    manifest: Manifest
    host: Host
    kernels: tuple[KernelPlan, ...]
    warnings: tuple[str, ...] = ()
    idle_overrides: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The library's name."""
        return self.manifest.package.name

    @property
    def variants(self) -> tuple[Variant, ...]:
        """All variants, in manifest order."""
        return tuple(variant for kernel in self.kernels for variant in kernel.variants)


def of_all_hosts(plans: Sequence[Plan]) -> Plan:
    """One plan with the targets of every host of a package: those of one name are alike on all of them."""
    kernels: dict[str, KernelPlan] = {}
    for plan in plans:
        for kernel in plan.kernels:
            before = kernels.get(kernel.name)
            kernels[kernel.name] = kernel if before is None else _joined(before, kernel)
    return replace(plans[0], kernels=tuple(kernels.values()))


def _joined(first: KernelPlan, second: KernelPlan) -> KernelPlan:
    """A kernel with the variants of the other's targets that it lacks."""
    known = {variant.target.name for variant in first.variants}
    added = (variant for variant in second.variants if variant.target.name not in known)
    return replace(first, variants=(*first.variants, *added))
