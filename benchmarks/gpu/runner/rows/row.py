"""A row of the table, and what the families share in making one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Peer = Callable[..., Any]


@dataclass(frozen=True)
class Row:
    """One piece of work, done by a kernel of the library and by its peers.

    ``make()`` gives one set of inputs on the GPU, tensors and numbers by name. The kernel takes those that
    are its parameters; each peer gets the whole set by name (some may be for it alone) and takes what
    it does not need in ``**_``. ``dims``: what the table shows, and the dims that no tensor shows.
    ``outputs`` are compared with what ``reference(**set)`` returns (one tensor or several, in that order)
    by the norm of the difference over the norm, at most ``rtol``; without a reference the first peer gives
    it on float32 operands. ``flops`` and ``bytes`` are what the work needs at least. ``sustained``: also
    timed back to back, at the power limit. ``copied``: a copy of ``bytes`` (half of them read) by the
    library's own kernel is timed, too. ``sets``: so many sets of inputs at least take turns. ``note``: what
    tells rows of the same kernel and dims apart. ``library``: another one of the folder's libraries.
    """

    kernel: str
    dims: dict[str, int]
    make: Callable[[], dict[str, Any]]
    outputs: tuple[str, ...]
    peers: dict[str, Peer]
    flops: float
    bytes: float
    rtol: float = 2e-2
    reference: Peer | None = None
    sustained: bool = False
    copied: bool = False
    sets: int = 0
    note: str = ""
    library: str = ""

    @property
    def name(self) -> str:
        """Kernel and dims in one text."""
        sizes = [f"{dim}={value}" for dim, value in self.dims.items()]
        return " ".join([self.kernel, *sizes, *([self.note] if self.note else [])])


def random(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Normal values on the GPU."""
    return torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype)


def size_of(tensors: dict[str, Any]) -> int:
    """Bytes of one set of inputs."""
    found = [value for value in tensors.values() if isinstance(value, torch.Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in found)
