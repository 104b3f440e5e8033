"""What the kernels of a build lose: the roads with a loss, per kernel and target, the gravest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.ir.roads import Road, decode, losses

if TYPE_CHECKING:
    from tilec.package.model import KernelRecord, PackageSpec


@dataclass(frozen=True)
class Lost:
    """What variants of ``kernel`` on ``target`` lose, each once, though several have it."""

    kernel: str
    target: str
    roads: tuple[Road, ...]


def lost(spec: PackageSpec) -> list[Lost]:
    """In the order of kernels and targets; those that lose nothing are left out."""
    found = (each for kernel in spec.kernels for each in _of_kernel(kernel))
    return [each for each in found if each.roads]


def _of_kernel(kernel: KernelRecord) -> Iterator[Lost]:
    for target in dict.fromkeys(variant.target for variant in kernel.variants):
        images = [variant.image for variant in kernel.variants if variant.target == target]
        texts = dict.fromkeys(launch.roads for image in images for launch in image.launches)
        roads = dict.fromkeys(road for text in texts for road in decode(text))
        yield Lost(kernel.name, target, tuple(losses(roads)))
