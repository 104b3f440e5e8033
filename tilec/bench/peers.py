"""What stands beside a kernel: its reference in NumPy, its peer in torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.errors import EnvironmentError_
from tilec.families import family_at
from tilec.portable.guarded import OnDevice
from tilec.trials.facts import KernelFacts
from tilec.trials.oracle import Author

if TYPE_CHECKING:
    from tilec.portable.devices.base import Device

PEERS = ("numpy", "torch")
_NO_TORCH = 'its reference is none in torch; name one as "peer" in the manifest'


class NoPeer(Exception):
    """There is nothing to compare with; the text says why."""


def peer_call(
    name: str, kernel: KernelFacts, author: Author, sets: Sequence[Mapping[str, Any]], device: Device
) -> Callable[[int], object]:
    """A function that runs the peer on input set ``i``. Raises NoPeer."""
    function = author.reference if name == "numpy" else author.peer or author.reference
    if function is None:
        raise NoPeer("the manifest names none")
    if name == "numpy" and not device.on_host:
        raise NoPeer(f"NumPy does not run on a {family_at(str(device)).word}")
    read = [param for param in kernel.params if not param.is_tensor or param.access != "out"]
    convert = np.ascontiguousarray if name == "numpy" else to_torch(device)
    given = [
        [convert(each[param.name]) if param.is_tensor else each[param.name] for param in read]
        for each in sets
    ]
    try:
        made = function(*given[0])
    except Exception as error:  # an author's function may be narrower than its kernel
        if name == "torch" and author.peer is None:
            raise NoPeer(_NO_TORCH) from error
        raise NoPeer(f"it raised {type(error).__name__}: {_first_line(error)}") from error
    if name == "torch" and not _is_torch(made):
        raise NoPeer(_NO_TORCH)
    return lambda number: function(*given[number])


def import_torch(threads: int | None) -> Any:
    """torch, on ``threads`` threads. Raises EnvironmentError_ where it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise EnvironmentError_(
            "--vs torch needs torch", why=str(error), remedy="install it, or leave --vs torch out"
        ) from error
    if threads:
        torch.set_num_threads(threads)
    return torch


def to_torch(device: Device) -> Callable[[Any], Any]:
    """What makes torch's tensors of arrays there. Raises NoPeer."""
    torch, where = import_torch(None), device.torch
    if not where:
        raise NoPeer(f"torch has no tensors on {device}")

    def convert(array: Any) -> Any:
        packed = np.ascontiguousarray(array.host if isinstance(array, OnDevice) else array)
        if packed.dtype.kind == "V" or not packed.dtype.isbuiltin:
            kind = getattr(torch, packed.dtype.name, None)
            if kind is None:
                raise NoPeer(f"torch has no {packed.dtype.name}")
            bits = packed.view(f"u{packed.dtype.itemsize}").view(f"i{packed.dtype.itemsize}")
            return torch.from_numpy(bits).view(kind).to(where)
        return torch.from_numpy(packed).to(where)

    return convert


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")[:100]


def _is_torch(value: Any) -> bool:
    several = value if isinstance(value, (tuple, list)) else (value,)
    return all(hasattr(each, "data_ptr") for each in several)
