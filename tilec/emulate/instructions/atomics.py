"""Atomic updates of one element: lanes one after the other, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilec.emulate.group import Group
from tilec.emulate.instructions.registry import as_bits, function, instruction, unknown
from tilec.emulate.state.memory import At, Memory
from tilec.emulate.state.numbers import TYPES

#: How an element and an operand combine, by the name of the operation.
UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda old, new: old + new,
    "max": max,
    "min": min,
    "or": lambda old, new: old | new,
    "and": lambda old, new: old & new,
    "xor": lambda old, new: old ^ new,
    "exch": lambda old, new: new,
    "inc": lambda old, new: 0 if old >= new else old + 1,
    "dec": lambda old, new: new if old == 0 or old > new else old - 1,
}


def update(
    g: Group, m: Any, memory: Memory, offset: Any, dtype: str, values: tuple[Any, ...], combine: Any
) -> np.ndarray:
    """Updates an element for each lane that runs; what it held before, per lane."""
    kind = TYPES[dtype]
    offsets = np.full(g.count, offset, np.int64) if not isinstance(offset, np.ndarray) else offset
    given = [as_bits(value, dtype, g.count) for value in values]
    lanes = np.arange(g.count) if m is None else np.flatnonzero(m)
    old = np.zeros(g.count, kind)
    if len(lanes) == 0:
        return old
    at = offsets.astype(np.int64)[lanes]
    memory.check(at, kind.itemsize, "an atomic update")
    access = g.access(g.lane_warps[lanes], is_atomic=True)
    memory.shadow.write(at, kind.itemsize, access, lambda: np.zeros(len(at), np.bool_))
    for lane, place in zip(lanes.tolist(), at.tolist(), strict=True):
        held = memory.bytes[place : place + kind.itemsize].view(kind)
        old[lane] = held[0]
        with np.errstate(over="ignore"):
            held[0] = combine(held[0], *(each[lane] for each in given))
    return old


def _function(name: str) -> Any:
    def run(g: Group, m: Any, place: At, value: Any, dtype: str) -> Any:
        return update(g, m, place.memory, place.offset, dtype, (value,), UPDATES[name])

    return run


for _name in ("add", "max", "min", "or", "and", "xor", "exch"):
    function(f"atomic{_name.capitalize()}", dtype="", typed_by=0)(_function(_name))


def _swapped(old: Any, expected: Any, new: Any) -> Any:
    return new if old == expected else old


@function("atomicCAS", dtype="", typed_by=0)
def compare_and_swap(g: Group, m: Any, place: At, expected: Any, new: Any, dtype: str) -> Any:
    """Stores ``new`` where the element is ``expected``; the old value."""
    return update(g, m, place.memory, place.offset, dtype, (expected, new), _swapped)


@function("tilec_swap_byte", dtype="uint16")
def swap_byte(g: Group, m: Any, place: At, expected: Any, new: Any) -> Any:
    """Stores the byte ``new`` where it is ``expected``; the old one."""
    expected, new = (np.asarray(value).astype(np.uint8) for value in (expected, new))
    found = update(g, m, place.memory, place.offset, "uint8", (expected, new), _swapped)
    return found.astype(np.uint16)


_TYPES = {"u32": "uint32", "s32": "int32", "b32": "uint32", "u64": "uint64", "s64": "int64", "b64": "uint64",
          "f32": "float32", "f64": "float64"}  # fmt: skip
#: Two elements in a word.
_PAIRS = {"f16x2": "float16", "bf16x2": "bfloat16"}


def _place(g: Group, parts: tuple[str, ...], address: Any) -> tuple[Memory, Any]:
    if isinstance(address, At):
        return address.memory, address.offset
    return g.block.window(address)


@instruction("atom", outputs=1)
def atom(g: Group, m: Any, parts: tuple[str, ...], address: Any, *values: Any) -> tuple[Any, ...]:
    """atom{.sem}{.scope}{.space}.op.type."""
    dtype = _TYPES.get(parts[-1])
    memory, offset = _place(g, parts, address)
    name = next((part for part in parts[1:] if part in (*UPDATES, "cas")), None)
    if name is None or dtype is None:
        raise unknown(parts)
    combine = _swapped if name == "cas" else UPDATES[name]
    return (update(g, m, memory, offset, dtype, values, combine),)


@instruction("red")
def red(g: Group, m: Any, parts: tuple[str, ...], address: Any, *values: Any) -> None:
    """An atomic update whose old value nobody wants; of neighbours, each atomically, where there are several
    values or two in a word."""
    pair = _PAIRS.get(parts[-1])
    if pair is None and len(values) == 1:
        atom(g, m, parts, address, *values)
        return
    dtype = pair or _TYPES.get(parts[-1])
    name = next((part for part in parts[1:] if part in UPDATES), None)
    if dtype is None or name is None or (len(values) > 1 and f"v{len(values)}" not in parts):
        raise unknown(parts)
    memory, offset = _place(g, parts, address)
    elements = values if pair is None else [half for value in values for half in _halves(value, g.count)]
    size = TYPES[dtype].itemsize
    _check_vector(g, m, memory, offset, size * len(elements))
    for number, element in enumerate(elements):
        update(g, m, memory, offset + number * size, dtype, (element,), UPDATES[name])


def _halves(value: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The low and the high 16 bits of a word."""
    word = as_bits(value, "uint32", count)
    return (word & 0xFFFF).astype(np.uint16), (word >> 16).astype(np.uint16)


def _check_vector(g: Group, m: Any, memory: Memory, offset: Any, size: int) -> None:
    """Hazard where a vector is not aligned to its size."""
    offsets = np.broadcast_to(np.asarray(offset, np.int64), (g.count,))
    offsets = offsets if m is None else offsets[m]
    if len(offsets):
        memory.check(offsets, size, "an atomic update")
