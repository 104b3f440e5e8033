"""What lowering hands to code generation: one TIR function per launch and how to launch it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

    from tilec.errors import Place
    from tilec.ir.roads import Road


#: The attribute of a function that lists its pointers that may lead to the same memory, counted from its
#: first parameter; all others lead to memory of their own.
OVERLAPPING = "tilec.overlapping"


def overlapping_pointers(func: PrimFunc) -> tuple[int, ...]:
    """The places of the parameters that may lead to the same memory."""
    return tuple(int(place) for place in (func.attrs or {}).get(OVERLAPPING, ()))


@dataclass(frozen=True)
class WindowCode:
    """The window of a tensor map that walks over images, per axis between channels and batch, innermost
    first: the corners, counted from the first and the last pixel, and the steps between pixels."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True)
class TensorMapCode:
    """A tensor map to encode (cuTensorMapEncodeTiled) from tensor parameter number ``tensor``, counted among
    the tensors. Per axis, innermost first: ``extents`` in elements and, without the innermost, ``strides`` in
    bytes, as integer texts; the ``box`` that moves at once. ``swizzle`` is 0, 32, 64 or 128 bytes. With a
    ``window`` (cuTensorMapEncodeIm2col) the box is channels by pixels."""

    tensor: int
    dtype: str
    extents: tuple[str, ...]
    strides: tuple[str, ...]
    box: tuple[int, ...]
    swizzle: int
    window: WindowCode | None = None


@dataclass(frozen=True, eq=False)
class LoweredLaunch:
    """One launch. ``func`` has the entry signature that ``tilec.codegen.image`` describes: pointers as
    handles, no buffer map, no return value; its names carry no meaning. ``grid`` has 1 to 3 integer texts,
    ``threads`` is the block size of a CUDA launch, ``scratch_bytes`` is per worker (CPU; multiple of 64),
    ``notes`` are the lines that `explain` shows, ``roads`` those of its statements, ``place`` is where the
    author wrote the launch.

    CUDA alone: ``shared_bytes`` is dynamic shared memory, ``cluster`` the thread blocks of a cluster.
    ``blocks_per_sm`` above 0 marks a persistent kernel, which walks over its tiles from blockIdx.x in steps
    of gridDim.x: the runtime starts at most that many blocks for each multiprocessor along x.
    ``tensor_maps`` are the last parameters of ``func``. ``entry_registers`` are what each thread must have at
    launch because the code hands them on (setmaxnreg); with fewer it would wait for ever. ``programmatic``
    lets the launch begin before the one in front of it in the stream has ended (programmatic dependent
    launch, from sm_90 on): its code must wait with griddepcontrol.wait before it touches global memory.
    ``cooperative``: its blocks wait for each other, so that the device must hold all of them at once."""

    func: PrimFunc
    grid: tuple[str, ...]
    threads: tuple[int, int, int]
    scratch_bytes: int = 0
    notes: tuple[str, ...] = ()
    roads: tuple[Road, ...] = ()
    shared_bytes: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    blocks_per_sm: int = 0
    entry_registers: int = 0
    programmatic: bool = False
    cooperative: bool = False
    tensor_maps: tuple[TensorMapCode, ...] = ()
    place: Place | None = None


@dataclass(frozen=True, eq=False)
class LoweredKernel:
    """All launches of one variant in order; ``workspace`` pairs each T.alloc_global's name with the integer
    text of its size in bytes. ``needs``: the condition on dims and arguments under which the code is right,
    as an integer text; empty where it always is. ``options`` are the kernel's."""

    name: str
    launches: tuple[LoweredLaunch, ...]
    workspace: tuple[tuple[str, str], ...] = ()
    needs: str = ""
    options: tuple[tuple[str, object], ...] = ()

    def option(self, name: str) -> object:
        """The value of an option of `tilec.ir.options`, None where it is not set."""
        return dict(self.options).get(name)
