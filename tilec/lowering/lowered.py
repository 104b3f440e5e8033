"""What lowering hands to code generation: one TIR function per launch and how to launch it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

    from tilec.errors import Place
    from tilec.ir.roads import Road


#: The attribute of a function that lists its pointers that may lead to the same memory, counted from its
#: first parameter; all others lead to memory of their own.
OVERLAPPING = "tilec.overlapping"
#: The attribute that lists those that lead to tensors of which a kernel reads at most what it has
#: written before in the same launch.
OUTPUTS = "tilec.outputs"


def overlapping_pointers(func: PrimFunc) -> tuple[int, ...]:
    """The places of the parameters that may lead to the same memory."""
    return _places(func, OVERLAPPING)


def output_pointers(func: PrimFunc) -> tuple[int, ...]:
    """The places of the parameters that lead to tensors of which nothing is read that was there before."""
    return _places(func, OUTPUTS)


def _places(func: PrimFunc, name: str) -> tuple[int, ...]:
    return tuple(int(place) for place in (func.attrs or {}).get(name, ()))


@dataclass(frozen=True, eq=False)
class LoweredLaunch:
    """One launch. ``func`` has the entry signature that ``tilec.codegen.image`` describes: pointers as
    handles, no buffer map, no return value; its names carry no meaning. ``grid`` has 1 to 3 integer texts,
    ``threads`` is the block size on a device, ``scratch_bytes`` is per worker (CPU; multiple of 64),
    ``notes`` are the lines that `explain` shows, ``roads`` those of its statements, ``place`` is where the
    author wrote the launch.

    On devices beside the host: ``shared_bytes`` of a block are asked for at launch, ``cluster`` is the blocks
    that run together. ``blocks_per_unit`` above 0 marks a persistent kernel, which walks over its tiles from
    its number along x in steps of the grid: the runtime starts at most that many blocks for each
    multiprocessor. A family with more to say has a class of its own (`tilec.backends.cuda.launch`)."""

    func: PrimFunc
    grid: tuple[str, ...]
    threads: tuple[int, int, int]
    scratch_bytes: int = 0
    notes: tuple[str, ...] = ()
    roads: tuple[Road, ...] = ()
    shared_bytes: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    blocks_per_unit: int = 0
    place: Place | None = None

    @property
    def has_bulk_copies(self) -> bool:
        """Whether a unit of the device moves its tiles, not its threads."""
        return False

    @property
    def way(self) -> dict[str, object]:
        """How ``func`` is launched, and what else of the launch decides how it runs."""
        told = {"func", "notes", "roads", "place"}
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in told}


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
