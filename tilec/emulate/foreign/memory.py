"""What C names: values, and pointers to registers and memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tilec.backends.cuda.device.helper import C_TYPES
from tilec.emulate.foreign.syntax import CType
from tilec.emulate.lanes import Lanes, Spot
from tilec.emulate.runtime import columns, packed, wide
from tilec.emulate.state.memory import At
from tilec.emulate.state.numbers import TYPES, cast
from tilec.emulate.state.registers import Registers
from tilec.errors import UnsupportedError

#: C spelling of vectors -> (dtype, count).
VECTORS: dict[str, tuple[str, int]] = {
    f"{name}{count}": (dtype, count)
    for name, dtype in (
        ("char", "int8"), ("uchar", "uint8"), ("short", "int16"), ("ushort", "uint16"), ("int", "int32"),
        ("uint", "uint32"), ("longlong", "int64"), ("ulonglong", "uint64"), ("float", "float32"),
        ("double", "float64"), ("half", "float16"),
    )
    for count in (1, 2, 3, 4)
}  # fmt: skip


@dataclass(frozen=True)
class Scalar:
    """A value and its dtype; "map" for a tensor map, "text" for a string."""

    value: Any
    dtype: str

    def to(self, dtype: str) -> Scalar:
        """Converted as C does it."""
        return self if self.dtype in (dtype, "map") else Scalar(cast(self.value, self.dtype, dtype), dtype)


Vector = tuple[Scalar, ...]


@dataclass(frozen=True)
class Pointer:
    """A place: elements of ``dtype``, ``lanes`` of them at once."""

    to: At | Spot
    dtype: str
    lanes: int = 1

    def typed(self, kind: CType) -> Pointer:
        """The same place as one of another type."""
        return self if kind.name in ("void", "auto") else Pointer(self.to, *element(kind))

    def moved(self, index: Any) -> Pointer:
        """``self + index``."""
        to, size = self.to, TYPES[self.dtype].itemsize * self.lanes
        if isinstance(to, At):
            return replace(self, to=At(to.memory, to.offset + wide(index) * size))
        own = TYPES[to.registers.dtype].itemsize
        if size % own:
            raise UnsupportedError(f"a step of {size} bytes over elements of {own}")
        return replace(self, to=Spot(to.registers, to.index + index * (size // own)))


Operand = Scalar | Vector | Pointer


def element(kind: CType) -> tuple[str, int]:
    """The dtype and the components of a type, pointers aside."""
    if kind.name in VECTORS:
        return VECTORS[kind.name]
    if kind.name not in C_TYPES:
        raise UnsupportedError(f"the emulator has no values of the type {kind.name}")
    return C_TYPES[kind.name], 1


def variable(lanes: Lanes, name: str, dtype: str, components: int, count: int) -> Pointer:
    """A new variable of ``count`` elements."""
    made = Registers(name, components * count, dtype, lanes.count, lanes.g.taint)
    lanes.g.local.append(made)
    return Pointer(Spot(made, 0), dtype, components)


def read(place: Pointer, lanes: Lanes) -> Scalar | Vector:
    """What is there."""
    if place.lanes == 1:
        return Scalar(lanes.load(place.to, place.dtype), place.dtype)
    rows = lanes.rows(place.to, TYPES[place.dtype].itemsize * place.lanes)
    return tuple(Scalar(each, place.dtype) for each in columns(rows, place.dtype))


def write(place: Pointer, value: Scalar | Vector, lanes: Lanes) -> None:
    """Sets it."""
    given = value if isinstance(value, tuple) else (value,)
    if len(given) != place.lanes:
        raise UnsupportedError(f"{len(given)} components for a value of {place.lanes}")
    values = [each.to(place.dtype).value for each in given]
    if place.lanes == 1:
        lanes.store(place.to, place.dtype, values[0])
    else:
        lanes.put(place.to, packed(lanes.g, values, place.dtype))
