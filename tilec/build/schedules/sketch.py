"""What the tile IR alone says of a config: the terms of the cost model, without a pass of lowering."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilec.backends.base import limits_of
from tilec.build.schedules.cost import predicted_seconds, tensor_bytes
from tilec.build.schedules.examine import Examined, LaunchShape, largest_fragment
from tilec.errors import TilecError

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel, Launch
    from tilec.targets import Target

#: Of a dim that is a runtime value.
_USUAL = 4096


def promise(kernel: Kernel, target: Target) -> float:
    """Seconds of a call, to order configs of one kernel by; infinite where the tile IR does not tell. Runtime
    dims are taken to be of a usual size. The device is a usual one."""
    dims = {dim.name: dim.guard.eq if dim.guard.eq is not None else _USUAL for dim in kernel.dims}
    try:
        found = sketch(kernel)
        moved = tensor_bytes(found.signature.params, dims)
        return predicted_seconds(found, dims, moved, limits_of(target))
    except (TilecError, KeyError, ValueError, ZeroDivisionError):
        return math.inf


def sketch(kernel: Kernel) -> Examined:
    """A kernel as `examine.py` sees it; the shared memory of a launch is that of its tiles, as often
    as its deepest pipeline holds them."""
    from tilec.build.schedules.terms import terms_of
    from tilec.package.model import signature

    names = {dim.var: dim.name for dim in kernel.dims if dim.var is not None}
    launches = tuple(_shape(launch, names) for launch in kernel.launches)
    return Examined("", terms_of(kernel), launches, signature(kernel), "")


def _shape(launch: Launch, names: Mapping[Any, str]) -> LaunchShape:
    from tilec.ir import nodes
    from tilec.lowering.emission.texts import int_text

    stages, shared = 1, 0
    for stmt in nodes.walk(launch.body):
        if isinstance(stmt, nodes.Pipelined):
            stages = max(stages, stmt.num_stages)
        elif isinstance(stmt, nodes.Alloc) and stmt.buffer.scope() == "shared.dyn":
            shared += _bytes(stmt.buffer)
    grid = tuple(int_text(extent, names) for extent in launch.grid)
    threads, words = math.prod(launch.threads), largest_fragment(launch)
    parts, columns = launch.schedule.split_k or 1, launch.schedule.split_row or 1
    blocks, held = parts * columns, shared * stages // columns
    sizes = (*grid, str(blocks)) if blocks > 1 else grid
    return LaunchShape(sizes, threads, held, blocks, bulk_copies=True, words=words, parts=parts)


def _bytes(buffer: Any) -> int:
    from tilec.dtypes import lookup

    return math.prod(int(extent) for extent in buffer.shape) * lookup(str(buffer.dtype)).bits // 8
