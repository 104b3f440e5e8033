"""What a family of kernels is: configs to draw, a kernel to compile, and torch's results and time."""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import torch

#: Bits of an exponential's argument for one of e.
LOG2_E = 1.44269504

#: What a kernel is called with, the bytes of its shared tiles and the elements of its results.
Drawn = tuple[dict[str, Any], int, int]


class Work(NamedTuple):
    """A kernel's arguments, one wanted tensor of float32 for each result, and torch's way to them."""

    inputs: tuple[torch.Tensor, ...]
    wanted: tuple[torch.Tensor, ...]
    peer: Callable[[], Any]


class Family(NamedTuple):
    """Kernels that differ in tiles, threads, stages and forms."""

    draw: Callable[[Random], Drawn]
    kernel: Any
    work: Callable[[dict[str, Any]], Work]
    repeats: Callable[[dict[str, Any]], bool] = lambda values: True
    """Do the same numbers give the same results each time? Sums by atomics do not."""


def normal(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 0.3) -> torch.Tensor:
    """Numbers of a normal distribution."""
    return (torch.randn(*shape) * scale).to(dtype)
