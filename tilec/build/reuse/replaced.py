"""What the library that lies where a build of a part goes has, and the part has not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tilec.errors import LibraryError
from tilec.package.library.inspect import read_library
from tilec.package.model import PackageSpec
from tilec.package.places import places


def lost_to_a_part(specs: Sequence[PackageSpec], folder: Path) -> tuple[str, ...]:
    """What each library of ``folder`` loses when ``specs``, a part of their manifest, replace it."""
    found = zip(specs, places(specs), strict=True)
    return tuple(line for spec, place in found for line in _lost(spec, folder / place.library))


def _lost(spec: PackageSpec, library: Path) -> Iterator[str]:
    had = _parts(library)
    kernels = {kernel.name for kernel in spec.kernels}
    targets = {variant.target for kernel in spec.kernels for variant in kernel.variants}
    lost = [part for part in had if part not in kernels | targets]
    if lost:
        yield (
            f"{library} had {', '.join(lost)}, too, which --target and --kernel leave out: "
            "build all of the manifest, or give the part a folder of its own with -o"
        )


def _parts(library: Path) -> list[str]:
    """The targets and kernels of a library; none of what is no library of tilec."""
    try:
        told = read_library(library).metadata
    except LibraryError:
        return []
    return [*told["targets"], *(kernel["name"] for kernel in told["kernels"])]
