"""Loads, stores and addresses of global and shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec.emulate.group import Group
from tilec.emulate.instructions.registry import Instruction, as_bits, function, instruction, unknown
from tilec.emulate.state.memory import SHARED_BASE, At, Memory

_BITS = {f"{kind}{bits}": bits // 8 for kind in "bus" for bits in (8, 16, 32, 64)} | {"f32": 4, "f64": 8}


@function("__cvta_generic_to_shared", dtype="uint32")
def to_shared(g: Group, m: Any, place: At) -> Any:
    """The address in the shared window."""
    if isinstance(place.offset, np.ndarray):
        return (place.offset + SHARED_BASE).astype(np.uint32)
    return int(place.offset) + SHARED_BASE


def _lanes(parts: tuple[str, ...]) -> int:
    return next((int(part[1:]) for part in parts if part in ("v2", "v4", "v8")), 1)


def _place(g: Group, m: Any, address: Any) -> tuple[Memory, Any]:
    if isinstance(address, At):
        return address.memory, address.offset
    return g.block.window(address, m)


def _loaded(each: Instruction) -> int:
    return _lanes(each.parts)


@instruction("ld", outputs=_loaded)
def load(g: Group, m: Any, parts: tuple[str, ...], address: Any, *policy: Any) -> tuple[Any, ...]:
    """ld{.sem}{.scope}.space{.cache}{.vec}.type."""
    size, count = _size(parts), _lanes(parts)
    memory, offset = _place(g, m, address)
    raw = g.load_bytes(m, memory, offset, size * count, is_atomic=_is_ordered(parts))
    kind = np.dtype(f"uint{8 * size}")
    values = np.ascontiguousarray(raw).view(kind)
    found = [np.ascontiguousarray(values[:, lane]) for lane in range(count)]
    return tuple(part if len(part) == g.count else np.full(g.count, part[0]) for part in found)


@instruction("st")
def store(g: Group, m: Any, parts: tuple[str, ...], address: Any, *values: Any) -> None:
    """st{.sem}{.scope}.space{.cache}{.vec}.type. Lanes may store to several blocks of a cluster."""
    size, count = _size(parts), _lanes(parts)
    columns = [as_bits(value, f"uint{8 * size}", g.count) for value in values[:count]]
    rows = np.ascontiguousarray(np.stack(columns, axis=1)).view(np.uint8)
    ordered = _is_ordered(parts)
    for mask in g.block.by_block(address, m):
        memory, offset = _place(g, mask, address)
        g.store_bytes(mask, memory, offset, rows, is_atomic=ordered, overwrites=ordered)


def _is_ordered(parts: tuple[str, ...]) -> bool:
    """Whether an access is one that others may meet."""
    return any(part in ("relaxed", "acquire", "release") for part in parts)


def _size(parts: tuple[str, ...]) -> int:
    if "async" in parts or parts[-1] not in _BITS:
        raise unknown(parts)
    return _BITS[parts[-1]]


_HINTS = ("prefetch", "prefetchu", "createpolicy", "griddepcontrol.launch_dependents", "discard")


@instruction(*_HINTS, outputs=lambda each: int(each.parts[0] == "createpolicy"))
def hint(g: Group, m: Any, parts: tuple[str, ...], *operands: Any) -> tuple[Any, ...]:
    """What changes speed alone. Launches run one after the other here."""
    return (0,)


@instruction("griddepcontrol.wait")
def wait_for_launches(g: Group, m: Any, parts: tuple[str, ...]) -> None:
    """Earlier launches have ended."""
    if g.clocks.earlier is not None:
        g.clocks.ensure()
        g.clocks.learn(g.active_warps(m), g.clocks.earlier, 1)


@function("__ldg", "__ldcg", "__ldcs", dtype="", typed_by=0)
def cached(g: Group, m: Any, place: At, dtype: str) -> Any:
    """A load of one element."""
    return g.load(m, place.memory, place.offset, dtype)


@function("__stcg", "__stcs", dtype="void", typed_by=0)
def cached_store(g: Group, m: Any, place: At, value: Any, dtype: str) -> None:
    """A store of one element."""
    g.store(m, place.memory, place.offset, value, dtype)
