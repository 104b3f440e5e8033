"""What a CUDA launch takes beside what launches on every device do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from tilec.codegen import image
from tilec.lowering.lowered import LoweredKernel, LoweredLaunch


@dataclass(frozen=True)
class WindowCode:
    """The window of a tensor map that walks over images, per axis between channels and batch, innermost
    first: the corners, counted from the first and the last pixel, and the steps between pixels."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True)
class TensorMapCode:
    """A tensor map to encode (cuTensorMapEncodeTiled) from tensor number ``tensor``: those of the call, then
    those of the workspace. Per axis, innermost first: ``extents`` in elements and, without the innermost,
    ``strides`` in bytes, as integer texts; the ``box`` that moves at once. ``swizzle`` is 0, 32, 64 or 128
    bytes. With a ``window`` (cuTensorMapEncodeIm2col) the box is channels by pixels. ``rest``: 0, or the
    extent along the second axis of tiles of one box or more, whose boxes have equal shares of what the tensor
    has beyond whole tiles, if anything."""

    tensor: int
    dtype: str
    extents: tuple[str, ...]
    strides: tuple[str, ...]
    box: tuple[int, ...]
    swizzle: int
    window: WindowCode | None = None
    rest: int = 0


@dataclass(frozen=True, eq=False)
class LoweredCudaLaunch(LoweredLaunch):
    """``tensor_maps`` are the last parameters of ``func``. ``entry_registers`` are what each thread must have
    at launch because the code hands them on (setmaxnreg); with fewer it would wait for ever.
    ``programmatic`` lets the launch begin before the one in front of it in the stream has ended (programmatic
    dependent launch, from sm_90 on): its code must wait with griddepcontrol.wait before it touches global
    memory. ``loaded``: the bytes that a block brings for a tile, as an integer text; blocks with many of
    them begin early only where they are few (`runtime_c/src/devices/cuda/cuda_call.c` says why).
    ``cooperative``: its blocks wait for each other, so that the device must hold all of them at once."""

    entry_registers: int = 0
    programmatic: bool = False
    loaded: str = ""
    cooperative: bool = False
    tensor_maps: tuple[TensorMapCode, ...] = ()

    @property
    def has_bulk_copies(self) -> bool:
        """By TMA, which takes tensor maps."""
        return bool(self.tensor_maps)


def launches_of(lowered: LoweredKernel) -> tuple[LoweredCudaLaunch, ...]:
    """The launches of a kernel that was lowered for CUDA."""
    return cast("tuple[LoweredCudaLaunch, ...]", lowered.launches)


@dataclass(frozen=True)
class CudaLaunch(image.DeviceLaunch):
    """What the runtime needs for a launch; ``programmatic``, ``loaded``, ``cooperative`` and
    ``tensor_maps`` as in `LoweredCudaLaunch`. Figures of the assembler are None in a PTX image, which the
    driver assembles.

    A ``programmatic`` launch carries the attribute of programmatic dependent launch (cuLaunchKernelEx): it
    may begin as soon as every block of the launch in front of it in the stream has executed
    griddepcontrol.launch_dependents or ended, so its own code has to execute griddepcontrol.wait before it
    reads or writes global memory. A lowering asks for it with ``LoweredCudaLaunch(programmatic=True)``; code
    without the wait, and targets before sm_90, are refused when they are compiled."""

    blocks_per_sm: int = 0
    programmatic: bool = False
    loaded: str = ""
    cooperative: bool = False
    tensor_maps: tuple[TensorMapCode, ...] = ()

    @property
    def num_tensor_maps(self) -> int:
        """How many the runtime encodes for it."""
        return len(self.tensor_maps)


def read_launch(fields: Mapping[str, Any]) -> CudaLaunch:
    """The inverse of `dataclasses.asdict` and JSON."""
    maps = tuple(map(_read_map, fields["tensor_maps"]))
    return image.read_launch(CudaLaunch, {**fields, "tensor_maps": maps})


def _read_map(fields: Mapping[str, Any]) -> TensorMapCode:
    lists = {name: tuple(fields[name]) for name in ("extents", "strides", "box")}
    window = fields["window"]
    if window is not None:
        window = WindowCode(**{name: tuple(values) for name, values in window.items()})
    return TensorMapCode(**{**fields, **lists, "window": window})
