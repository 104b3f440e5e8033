"""What code generation hands to the package: machine code of one variant and how to launch it.

Plain data, so that it crosses process boundaries and lives in the cache. Integer expressions are texts in the
syntax of ``TensorParam.extents`` (Python, over dim names and scalar parameter names, with + - * // %,
comparisons, ``min(a, b)``, ``max(a, b)``, ``select(cond, a, b)``), computed in 64 bits.

The C entry of a CPU launch:

    void symbol(T *tensor..., void *workspace_slice..., scalar..., int64_t dim..., void *scratch,
                int64_t begin, int64_t end);

tensor parameters in kernel order, then one pointer per workspace slice, then scalar parameters in kernel
order (float16, bfloat16 and float8 travel as float, bool as int32_t, others as themselves), then every dim
of the kernel in order, pinned ones too; ``scratch`` is this worker's, 64-byte aligned; blocks [begin, end) of
the linear block index bx + gx * (by + gy * bz) are run.

The parameters of a CUDA kernel are the same without the last three: tensors, workspace slices, scalars
(float16, bfloat16 and float8 as float, bool as int32_t), then every dim as int64_t, then its tensor maps by
value (128 bytes each, aligned to 64, __grid_constant__), which the runtime encodes for every launch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tilec.lowering.lowered import LoweredKernel
    from tilec.targets import Target

_Launch = TypeVar("_Launch", bound="DeviceLaunch")

#: The functions of the runtime (runtime_c/src/launch/lines.c) that CPU kernels which print or check call.
RUNTIME_CALLS = frozenset(
    {"tilec_line_text", "tilec_line_int64", "tilec_line_uint64", "tilec_line_float64", "tilec_line_end",
     "tilec_check_failed"}
)  # fmt: skip

#: The functions of the runtime that tell CPU kernels about the machine (runtime_c/src/launch/last_cache.c).
RUNTIME_FACTS = frozenset({"tilec_last_cache_bytes"})


@dataclass(frozen=True)
class DeviceLaunch:
    """What a launch on a device beside the host takes. ``dynamic_shared`` bytes of shared memory are asked
    for at launch; ``cluster`` as in `tilec.lowering.lowered.LoweredLaunch`. ``static_shared`` bytes,
    ``registers`` and ``stack`` bytes per thread and ``spills`` (bytes stored to and loaded from local memory)
    are what the assembler reported, None where it did not. ``wide``: the pointers, by number, behind which
    the code moves more than elements; None where it may do so behind all. Families have more to say in
    classes of their own."""

    dynamic_shared: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    static_shared: int | None = None
    registers: int | None = None
    stack: int | None = None
    spills: int | None = None
    wide: tuple[int, ...] | None = None

    @property
    def num_tensor_maps(self) -> int:
        """Parameters that the runtime encodes for each launch."""
        return 0


@dataclass(frozen=True)
class PersistentLaunch(DeviceLaunch):
    """``blocks_per_unit``: at most so many blocks for each multiprocessor of a device, of a launch whose
    blocks walk over the grid; 0 for one block a tile."""

    blocks_per_unit: int = 0


def read_launch(kind: type[_Launch], fields: Mapping[str, Any]) -> _Launch:
    """The inverse of `dataclasses.asdict` and JSON for a class of launches."""
    wide = None if fields["wide"] is None else tuple(fields["wide"])
    return kind(**{**fields, "cluster": tuple(fields["cluster"]), "wide": wide})


@dataclass(frozen=True)
class LaunchCode:
    """One launch of a variant. ``grid`` has 1 to 3 integer texts; ``scratch_bytes`` is per worker (multiple
    of 64); ``notes`` are lines that `explain` shows, ``roads`` the text of those that statements take
    (`tilec.ir.roads.encode`), ``products`` the instructions that multiply tiles. ``gpu`` is what a launch on
    a device beside the host needs."""

    symbol: str
    grid: tuple[str, ...]
    threads: tuple[int, int, int]
    scratch_bytes: int = 0
    notes: tuple[str, ...] = ()
    gpu: DeviceLaunch | None = None
    roads: str = ""
    products: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkspaceSlice:
    """One T.alloc_global of a variant: its size in bytes is an integer text."""

    name: str
    bytes: str


@dataclass(frozen=True)
class Image:
    """Machine code of one variant. ``needs`` is the condition on dims and scalar parameters under which it is
    right, an integer text; empty: always. ``code`` is a relocatable ELF object for a CPU target; a cubin, or
    PTX that ends with a NUL, for a CUDA target; a code object for AMD GPUs; source that ends with a NUL for
    Metal. ``sha256`` is of ``code``. An image for a device has its ``compiler`` ("nvrtc 12.9"), one of CUDA
    the oldest driver that loads it, ``min_driver``, as drivers count: 1000 * major + 10 * minor."""

    target: str
    code: bytes
    sha256: str
    launches: tuple[LaunchCode, ...]
    workspace: tuple[WorkspaceSlice, ...] = ()
    compiler: str = ""
    min_driver: int = 0
    needs: str = ""


def image_with(
    code: bytes,
    lowered: LoweredKernel,
    target: Target,
    launches: Iterable[LaunchCode],
    compiler: str = "",
    min_driver: int = 0,
) -> Image:
    """The image of a lowered variant, whose machine code is ``code``."""
    return Image(
        target=target.name,
        code=code,
        sha256=hashlib.sha256(code).hexdigest(),
        launches=tuple(launches),
        workspace=tuple(WorkspaceSlice(name, size) for name, size in lowered.workspace),
        compiler=compiler,
        min_driver=min_driver,
        needs=lowered.needs,
    )
