"""A built library, read and loaded as verify and bench want it, with errors of the tree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tilec.errors import EnvironmentError_, LibraryError, Place
from tilec.families import family_at
from tilec.package.library.inspect import read_library
from tilec.trials.facts import KernelFacts, read_kernel

if TYPE_CHECKING:
    from tilec.portable import loader
    from tilec.portable.devices.base import Device


def read_facts(path: Path) -> list[KernelFacts]:
    """The kernels of a library, without loading it. Raises LibraryError."""
    info = read_library(path)
    texts = info.ir_texts()
    return [read_kernel(entry, texts) for entry in info.metadata["kernels"]]


def load_library(path: Path) -> loader.Library:
    """The loader's library. LibraryError of this package for what it refuses."""
    from tilec.portable import loader

    try:
        return loader.load(path)
    except loader.LibraryError as error:
        raise LibraryError(str(error), place=Place(str(path))) from error


def require_device(device: Device, purpose: str) -> None:
    """EnvironmentError_ where a device is not there."""
    from tilec.portable.loader import LaunchError

    try:
        device.memory(1)
    except LaunchError as error:
        family = family_at(str(device))
        raise EnvironmentError_(
            f"there is no {family.title} device {device.index} to {purpose} on",
            why=str(error),
            remedy=f"run this on a machine that has such a {family.word}, or leave --device out",
        ) from error
