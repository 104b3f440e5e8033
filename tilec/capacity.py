"""What a library has room for: the build refuses more, and tells the C runtime these numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Capacity:
    """The runtime knows each by its name in capitals: ``MAX_PARAMS``.

    Of a kernel: parameters, dims, and the extents and strides of all its tensors together. Of a variant:
    launches, and slices of its workspace. ``max_choices``: schedules of a list with the same guards.
    ``max_workers``: threads of a call, and multiprocessors that code is told of."""

    max_params: int = 64
    max_dims: int = 32
    max_extents: int = 512
    max_launches: int = 64
    max_slices: int = 16
    max_choices: int = 64
    max_workers: int = 1024


CAPACITY = Capacity()
