"""A built library, read and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tilec.errors import EnvironmentError_, LibraryError, Place
from tilec.package.inspect import read_library
from tilec.trials.facts import KernelFacts, read_kernel

if TYPE_CHECKING:
    from tilec.portable import loader


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


def check_device(number: int, purpose: str) -> None:
    """EnvironmentError_ where there is no such CUDA device."""
    from tilec.portable.loader import DeviceMemory, LaunchError

    try:
        DeviceMemory(number, 1)
    except LaunchError as error:
        raise EnvironmentError_(
            f"there is no CUDA device {number} to {purpose} on",
            why=str(error),
            remedy="run this on a machine with a GPU, or leave --device out",
        ) from error
