"""What stands for an argument where a kernel is compiled and not called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilec.errors import SourceValueError
from tilec.language.values.scalars import dtype as make_dtype


@dataclass(frozen=True)
class Place:
    """A tensor of this shape and dtype that is not there; ``strides`` in elements."""

    shape: tuple[int, ...]
    dtype: make_dtype
    strides: tuple[int, ...]

    def stride(self) -> tuple[int, ...]:
        """As torch's tensors have it."""
        return self.strides


@dataclass(frozen=True)
class EmptyPointer:
    """An address that is not there."""


def place(*shape: Any, dtype: Any = "float32", strides: Sequence[int] | None = None) -> Place:
    """In place of a tensor for `compile`, `par_compile`, `partial` and `get_tune_configs`: ``place(M, N,
    dtype=...)`` or ``place((M, N), dtype=...)``. ``strides`` in elements, row-major by default."""
    extents = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    steps = _row_major(extents) if strides is None else tuple(strides)
    if len(steps) != len(extents):
        raise SourceValueError(f"{len(extents)} extents but {len(steps)} strides", remedy="give one each")
    return Place(tuple(map(int, extents)), make_dtype(dtype), tuple(map(int, steps)))


def empty_data_ptr() -> EmptyPointer:
    """In place of an address, as `place` is of a tensor."""
    return EmptyPointer()


def _row_major(extents: Sequence[int]) -> tuple[int, ...]:
    steps, step = [], 1
    for extent in reversed(extents):
        steps.append(step)
        step *= int(extent)
    return tuple(reversed(steps))
