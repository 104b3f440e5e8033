"""Bulk reductions: runs and boxes out of shared memory that are combined with what lies in memory, element by
element (PTX ISA, "cp.reduce.async.bulk" and "cp.reduce.async.bulk.tensor")."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tilec.emulate.group import Group
from tilec.emulate.instructions.atomics import UPDATES
from tilec.emulate.instructions.mbarriers import at, find, lanes, of_lane
from tilec.emulate.instructions.registry import instruction, unknown
from tilec.emulate.instructions.tensor_maps import CHUNK, TensorMap
from tilec.emulate.instructions.tma import boxes_out, run_offsets, runs_out
from tilec.emulate.state.memory import At, Memory
from tilec.emulate.state.races import Access

_TYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "u32": np.uint32, "s32": np.int32, "b32": np.uint32, "u64": np.uint64, "s64": np.int64, "b64": np.uint64,
}  # fmt: skip
_OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")


def _operation(parts: tuple[str, ...]) -> str:
    found = next((part for part in parts if part in _OPERATIONS), None)
    if found is None:
        raise unknown(parts)
    return found


def _combine(memory: Memory, offsets: np.ndarray, values: np.ndarray, name: str, access: Access) -> None:
    """Combines ``values`` with the elements at ``offsets``, each atomically."""
    size, combine = values.itemsize, UPDATES[name]
    memory.check(offsets, size, "a bulk reduction")
    memory.shadow.write(offsets, size, access, lambda: np.zeros(len(offsets), np.bool_))
    with np.errstate(over="ignore"):
        for place, value in zip(offsets.tolist(), values, strict=True):
            held = memory.bytes[place : place + size].view(values.dtype)
            held[0] = combine(held[0], value)


@instruction("cp.reduce.async.bulk.global.shared::cta")
def reduce_run(
    g: Group, m: Any, parts: tuple[str, ...], to: At, source: Any, size: Any, *policy: Any
) -> None:
    """A run of bytes out of shared memory, combined with global memory."""
    name, kind = _operation(parts), _TYPES.get(parts[-1])
    if "bulk_group" not in parts or kind is None:
        raise unknown(parts)
    for lane, warp, own, chunks in runs_out(g, m, source, size):
        values = chunks.reshape(-1).view(kind)
        place = of_lane(to, lane)
        run_offsets(int(place.offset), values.nbytes)  # both ends are multiples of 16 bytes
        offsets = int(place.offset) + np.arange(len(values)) * values.itemsize
        access = g.access(np.full(len(offsets), warp, np.int32), agent=own.writer, moment=own.groups + 1,
                          is_atomic=True)  # fmt: skip
        _combine(place.memory, offsets, values, name, access)


@instruction("cp.reduce.async.bulk.shared::cluster.shared::cta")
def send_run(g: Group, m: Any, parts: tuple[str, ...], to: Any, source: Any, size: Any, barrier: Any) -> None:
    """A run of bytes, combined with the shared memory of a block of the cluster; its mbarrier counts them."""
    name, kind = _operation(parts), _TYPES.get(parts[-1])
    if "mbarrier::complete_tx::bytes" not in parts or kind is None:
        raise unknown(parts)
    for lane, warp in lanes(g, m):
        memory, start = at(g, of_lane(source, lane))
        chunks = run_offsets(start, int(of_lane(size, lane)))
        found = find(g, of_lane(barrier, lane), warp)
        shared = {"agent": found.agent, "moment": found.phase + 1, "is_async_proxy": True}
        read = g.access(np.full(len(chunks), warp, np.int32), **shared)
        values = memory.read(chunks, CHUNK, read).reshape(-1).view(kind)
        target, place = at(g, of_lane(to, lane))
        run_offsets(place, values.nbytes)
        offsets = place + np.arange(len(values)) * values.itemsize
        access = g.access(np.full(len(offsets), warp, np.int32), is_atomic=True, **shared)
        _combine(target, offsets, values, name, access)
        found.bytes -= values.nbytes
        found.settle(g.clocks)


@instruction(*(f"cp.reduce.async.bulk.tensor.{axes}d.global.shared::cta" for axes in range(1, 6)))
def reduce_box(g: Group, m: Any, parts: tuple[str, ...], tensor: TensorMap, *operands: Any) -> None:
    """A box out of shared memory, combined with a tensor; elements outside of it are dropped."""
    name = _operation(parts)
    if type(tensor) is not TensorMap or "bulk_group" not in parts:
        raise unknown(parts)
    for warp, own, offsets, values in boxes_out(g, m, tensor, operands):
        access = g.access(np.full(len(offsets), warp, np.int32), agent=own.writer, moment=own.groups + 1,
                          is_atomic=True)  # fmt: skip
        _combine(tensor.memory, offsets, values.reshape(-1).view(tensor.dtype), name, access)
